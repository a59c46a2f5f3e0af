"""The audit: what was archived is listed, shown, verified against its chain, exported and erased."""
