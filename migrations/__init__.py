"""Alembic migrations of the registry, lifecycle and archive tables."""
