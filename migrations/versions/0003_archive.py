"""The archive: ended generations, their events, the audit's chain.

Revises 0002.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: None = None
depends_on: None = None

NAMES = ("chain", "archived", "generations")


def upgrade() -> None:
    """Apply."""
    _create_generations()
    _create_events()
    _create_chain()
    _create_cursor()


def downgrade() -> None:
    """Undo."""
    op.drop_table("archive_cursor")
    op.drop_index("ix_audit_chain_generation_id", table_name="audit_chain")
    op.drop_table("audit_chain")
    op.drop_table("archived_events")
    for name in ("caller", "ended_at_ms", "created_at_ms"):
        op.drop_index(f"ix_archived_generations_{name}", table_name="archived_generations")
    op.drop_table("archived_generations")


def _create_generations() -> None:
    op.create_table(
        "archived_generations",
        _column("generation_id", sa.String(36)),
        _column("caller", sa.Text()),
        _column("model", sa.Text()),
        _column("model_key", sa.String(32)),
        _column("model_digest", sa.String(64)),
        _column("compat", sa.Text()),
        _column("adapter_digests", sa.JSON()),
        _column("dialect", sa.String(32)),
        _column("priority", sa.String(32)),
        sa.Column("conversation", sa.Text(), nullable=True),
        _column("content", sa.String(32)),
        _column("engine", sa.String(64)),
        _column("host", sa.Text()),
        _column("build", sa.Text()),
        _column("n_attempts", sa.Integer()),
        _column("attempts", sa.JSON()),
        _column("created_at_ms", sa.BigInteger()),
        sa.Column("started_at_ms", sa.BigInteger(), nullable=True),
        _column("ended_at_ms", sa.BigInteger()),
        _column("outcome", sa.String(32)),
        _column("reason", sa.Text()),
        *_figures_and_digests(),
        sa.PrimaryKeyConstraint("generation_id", name="pk_archived_generations"),
    )
    for name in ("created_at_ms", "ended_at_ms"):
        op.create_index(f"ix_archived_generations_{name}", "archived_generations", [name])
    op.create_index(
        "ix_archived_generations_caller", "archived_generations", ["caller", "created_at_ms"]
    )


def _figures_and_digests() -> "list[sa.Column[Any]]":
    return [
        *(_column(name, sa.BigInteger()) for name in ("n_prompt", "n_predicted", "n_cached")),
        *(_column(name, sa.Float()) for name in ("prompt_ms", "predicted_ms")),
        _column("params", sa.JSON()),
        *(_column(name, sa.String(64)) for name in ("request_hash", "prompt_hash", "output_hash")),
        _column("n_entries", sa.Integer()),
        _column("last_seq", sa.BigInteger()),
        _column("archived_at_ms", sa.BigInteger()),
        sa.Column("erased_at_ms", sa.BigInteger(), nullable=True),
        _column("events_digest", sa.String(64)),
        _column("digest", sa.String(64)),
    ]


def _create_events() -> None:
    op.create_table(
        "archived_events",
        _column("generation_id", sa.String(36)),
        _column("codec", sa.String(32)),
        _column("data", sa.LargeBinary()),
        sa.ForeignKeyConstraint(
            ["generation_id"],
            ["archived_generations.generation_id"],
            name="fk_archived_events_generation_id_archived_generations",
        ),
        sa.PrimaryKeyConstraint("generation_id", name="pk_archived_events"),
    )


def _create_chain() -> None:
    op.create_table(
        "audit_chain",
        _column("day", sa.String(10)),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        _column("kind", sa.String(32)),
        _column("generation_id", sa.String(36)),
        _column("digest", sa.String(64)),
        _column("chain_digest", sa.String(64)),
        sa.PrimaryKeyConstraint("day", "position", name="pk_audit_chain"),
    )
    op.create_index("ix_audit_chain_generation_id", "audit_chain", ["generation_id"])


def _create_cursor() -> None:
    cursor = op.create_table(
        "archive_cursor",
        _column("name", sa.String(32)),
        _column("seq", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name="pk_archive_cursor"),
    )
    # The first archivers may be several: what they lock must be there already.
    op.bulk_insert(cursor, [{"name": name, "seq": 0} for name in NAMES])


def _column(name: str, kind: "sa.types.TypeEngine[Any]") -> "sa.Column[Any]":
    return sa.Column(name, kind, nullable=False)
