"""The table of API keys. Portable between SQLite and PostgreSQL. Rows are never deleted."""

from sqlalchemy import JSON, BigInteger, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from services.database.base import Base


class ApiKeyRow(Base):
    """One key, by its digest only; the columns are the fields of schemas.keys.KeyRecord and KeyLimits.
    Times are Unix milliseconds, 0 for never."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    name: Mapped[str] = mapped_column(Text)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    models: Mapped[list[str]] = mapped_column(JSON)
    requests_per_minute: Mapped[int] = mapped_column(Integer)
    tokens_per_minute: Mapped[int] = mapped_column(Integer)
    concurrent: Mapped[int] = mapped_column(Integer)
    content: Mapped[str] = mapped_column(String(8))
    created_at_ms: Mapped[int] = mapped_column(BigInteger)
    expires_at_ms: Mapped[int] = mapped_column(BigInteger)
    revoked_at_ms: Mapped[int] = mapped_column(BigInteger)
