"""The tables of the archive. Portable between SQLite and PostgreSQL.

Times are Unix milliseconds, digests sha256 in hex. What digests cover stands in
services.streams.archive.digests; rows are written once and change only by erasure and retention.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
)
from sqlalchemy.orm import Mapped, mapped_column

from services.database.base import Base

ID_LENGTH, DIGEST_LENGTH, NAME_LENGTH, WORD_LENGTH = 36, 64, 64, 32


class ArchivedGeneration(Base):
    """One ended generation.

    caller: key id. model_digest: sha256 of the model's file, where it was known by then; compat: what
    the engine says of the model that it had loaded. content: full, hashes or none. engine, host,
    build: of the last attempt. attempts: objects with attempt, engine, host, build, at_ms. outcome:
    finished, failed or cancelled; reason: why it stopped, failed or was cancelled. n_prompt,
    n_predicted, n_cached: tokens, prompt_ms, predicted_ms: milliseconds, over all choices.
    n_entries, last_seq: of its log. events_digest: of the log's entries; digest: of this row.
    request_hash, prompt_hash, output_hash, events_digest: empty where content is none.
    """

    __tablename__ = "archived_generations"

    generation_id: Mapped[str] = mapped_column(String(ID_LENGTH), primary_key=True)
    caller: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    model_key: Mapped[str] = mapped_column(String(WORD_LENGTH))
    model_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    compat: Mapped[str] = mapped_column(Text)
    adapter_digests: Mapped[list[str]] = mapped_column(JSON)
    dialect: Mapped[str] = mapped_column(String(WORD_LENGTH))
    priority: Mapped[str] = mapped_column(String(WORD_LENGTH))
    conversation: Mapped[str | None] = mapped_column(Text)
    content: Mapped[str] = mapped_column(String(WORD_LENGTH))
    engine: Mapped[str] = mapped_column(String(NAME_LENGTH))
    host: Mapped[str] = mapped_column(Text)
    build: Mapped[str] = mapped_column(Text)
    n_attempts: Mapped[int] = mapped_column(Integer)
    attempts: Mapped[list[dict[str, object]]] = mapped_column(JSON)
    created_at_ms: Mapped[int] = mapped_column(BigInteger)
    started_at_ms: Mapped[int | None] = mapped_column(BigInteger)
    ended_at_ms: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str] = mapped_column(String(WORD_LENGTH))
    reason: Mapped[str] = mapped_column(Text)
    n_prompt: Mapped[int] = mapped_column(BigInteger)
    n_predicted: Mapped[int] = mapped_column(BigInteger)
    n_cached: Mapped[int] = mapped_column(BigInteger)
    prompt_ms: Mapped[float] = mapped_column(Float)
    predicted_ms: Mapped[float] = mapped_column(Float)
    params: Mapped[dict[str, object]] = mapped_column(JSON)
    request_hash: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    prompt_hash: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    output_hash: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    n_entries: Mapped[int] = mapped_column(Integer)
    last_seq: Mapped[int] = mapped_column(BigInteger)
    archived_at_ms: Mapped[int] = mapped_column(BigInteger)
    erased_at_ms: Mapped[int | None] = mapped_column(BigInteger)
    events_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))


class ArchivedEvents(Base):
    """The log of one archived generation. Absent where its content is not kept, and after erasure.

    codec: zlib. data: compressed MessagePack list of [sequence, bytes of the entry].
    """

    __tablename__ = "archived_events"

    generation_id: Mapped[str] = mapped_column(
        ForeignKey(ArchivedGeneration.generation_id), primary_key=True
    )
    codec: Mapped[str] = mapped_column(String(WORD_LENGTH))
    data: Mapped[bytes] = mapped_column(LargeBinary)


class AuditLink(Base):
    """One link of the audit's chain. The first one of a day continues the last one of the day before.

    day: UTC, as 2026-11-30, never before an earlier link's. position: from 0 in its day. kind:
    generation, erasure or retention; generation_id and digest: what it is about (see digests).
    """

    __tablename__ = "audit_chain"

    day: Mapped[str] = mapped_column(String(10), primary_key=True)
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(WORD_LENGTH))
    generation_id: Mapped[str] = mapped_column(String(ID_LENGTH))
    digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))
    chain_digest: Mapped[str] = mapped_column(String(DIGEST_LENGTH))


class ArchiveCursor(Base):
    """How far the archive is. `chain`: number of links ever made; whoever adds one locks this row
    first. `archived`: number of generations ever archived. `generations`: the highest stream sequence
    that was archived."""

    __tablename__ = "archive_cursor"

    name: Mapped[str] = mapped_column(String(WORD_LENGTH), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger)


Index("ix_archived_generations_created_at_ms", ArchivedGeneration.created_at_ms)
Index("ix_archived_generations_ended_at_ms", ArchivedGeneration.ended_at_ms)
Index("ix_archived_generations_caller", ArchivedGeneration.caller, ArchivedGeneration.created_at_ms)
Index("ix_audit_chain_generation_id", AuditLink.generation_id)
