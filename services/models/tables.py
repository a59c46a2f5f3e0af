"""The tables of the registry and of the lifecycle. Portable between SQLite and PostgreSQL.

Times are Unix milliseconds. Statuses are those of schemas.lifecycle.
"""

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from services.database.base import Base

STATUS_LENGTH = 16
ENGINE_LENGTH = 64


class ModelRow(Base):
    """One model. key: schemas.subjects.model_key of its name.

    digest: sha256 of the file in hex, empty until computed for (path, size_bytes, mtime_ns).
    header: metadata of the GGUF file, without its long lists.
    """

    __tablename__ = "models"

    key: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    aliases: Mapped[list[str]] = mapped_column(JSON)
    tags: Mapped[list[str]] = mapped_column(JSON)
    path: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    mtime_ns: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column(String(64))
    header: Mapped[dict[str, object]] = mapped_column(JSON)
    created_at_ms: Mapped[int] = mapped_column(BigInteger)


class ModelStateRow(Base):
    """Where a model stands now; written in one transaction with its transition."""

    __tablename__ = "model_states"

    model_key: Mapped[str] = mapped_column(ForeignKey(ModelRow.key), primary_key=True)
    status: Mapped[str] = mapped_column(String(STATUS_LENGTH))
    progress: Mapped[float] = mapped_column(Float)
    error: Mapped[str] = mapped_column(Text)
    engine: Mapped[str] = mapped_column(String(ENGINE_LENGTH))
    changed_at_ms: Mapped[int] = mapped_column(BigInteger)


class ModelTransitionRow(Base):
    """One change of status. Append-only: nothing updates or deletes a row."""

    __tablename__ = "model_transitions"

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True
    )
    model_key: Mapped[str] = mapped_column(ForeignKey(ModelRow.key))
    from_status: Mapped[str] = mapped_column(String(STATUS_LENGTH))
    to_status: Mapped[str] = mapped_column(String(STATUS_LENGTH))
    reason: Mapped[str] = mapped_column(String(32))
    engine: Mapped[str] = mapped_column(String(ENGINE_LENGTH))
    error: Mapped[str] = mapped_column(Text)
    at_ms: Mapped[int] = mapped_column(BigInteger)


class DownloadRow(Base):
    """One download, as its receipt says (services.models.downloads.receipts). Append-only."""

    __tablename__ = "downloads"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    repo: Mapped[str] = mapped_column(Text)
    revision: Mapped[str] = mapped_column(String(64))
    file: Mapped[str] = mapped_column(Text)
    url: Mapped[str] = mapped_column(Text)
    path: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    etag: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(64))
    started_at_ms: Mapped[int] = mapped_column(BigInteger)
    ended_at_ms: Mapped[int] = mapped_column(BigInteger)
    outcome: Mapped[str] = mapped_column(String(16))
    error: Mapped[str] = mapped_column(Text)


Index("ix_model_transitions_model_key", ModelTransitionRow.model_key, ModelTransitionRow.id)
Index("ix_downloads_ended_at_ms", DownloadRow.ended_at_ms)
