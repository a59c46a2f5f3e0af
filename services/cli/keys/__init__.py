"""`llamatape keys`: API keys, made, shown and revoked in the database, whether a server runs or not."""
