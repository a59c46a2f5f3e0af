"""`llamatape audit …`: the archive for people and for scripts."""
