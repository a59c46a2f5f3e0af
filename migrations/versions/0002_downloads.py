"""What was downloaded: from where, to which file, with what outcome.

Revises 0001.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "downloads",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("revision", sa.String(64), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_downloads"),
    )
    op.create_index("ix_downloads_ended_at_ms", "downloads", ["ended_at_ms"])


def downgrade() -> None:
    """Undo."""
    op.drop_index("ix_downloads_ended_at_ms", table_name="downloads")
    op.drop_table("downloads")
