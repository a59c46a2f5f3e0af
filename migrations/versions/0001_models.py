"""The registry of models, their current state and the history of it.

Revises nothing.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Apply."""
    _create_models()
    _create_states()
    _create_transitions()


def downgrade() -> None:
    """Undo."""
    op.drop_index("ix_model_transitions_model_key", table_name="model_transitions")
    op.drop_table("model_transitions")
    op.drop_table("model_states")
    op.drop_table("models")


def _create_models() -> None:
    op.create_table(
        "models",
        sa.Column("key", sa.String(16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("mtime_ns", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("header", sa.JSON(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_models"),
    )


def _create_states() -> None:
    op.create_table(
        "model_states",
        sa.Column("model_key", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("engine", sa.String(64), nullable=False),
        sa.Column("changed_at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_key"], ["models.key"], name="fk_model_states_model_key_models"
        ),
        sa.PrimaryKeyConstraint("model_key", name="pk_model_states"),
    )


def _create_transitions() -> None:
    op.create_table(
        "model_transitions",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("model_key", sa.String(16), nullable=False),
        sa.Column("from_status", sa.String(16), nullable=False),
        sa.Column("to_status", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("engine", sa.String(64), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_key"], ["models.key"], name="fk_model_transitions_model_key_models"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_model_transitions"),
    )
    op.create_index("ix_model_transitions_model_key", "model_transitions", ["model_key", "id"])
