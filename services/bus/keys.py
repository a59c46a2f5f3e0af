"""What users of a bucket need of it; `kv.Bucket` is one, and tests have another that keeps to the same."""

from typing import Protocol


class StoredValue(Protocol):
    """A value, and the revision that an update must name."""

    @property
    def value(self) -> bytes: ...
    @property
    def revision(self) -> int: ...


class Keys(Protocol):
    """Keys and values with revisions. All methods raise BusUnavailable."""

    async def get(self, key: str) -> StoredValue | None: ...

    async def create(self, key: str, value: bytes) -> int:
        """Raises KeyConflict where there is one."""
        ...

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        """The new revision. revision: 0 where there is none. ttl_s: seconds until it goes. Raises
        KeyConflict where another revision is there."""
        ...

    async def delete(self, key: str) -> None: ...

    async def entries(self, pattern: str) -> dict[str, bytes]:
        """All that match a subject pattern."""
        ...
