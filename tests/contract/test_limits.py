"""What the limits expect of a bucket, and the keys' mirror of a database: fakes and the real parts."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from schemas import codec, subjects
from schemas.keys import KeyLimits, KeyRecord, KeyUsage
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.keys import Keys
from services.bus.kv import Bucket
from services.edge.key_ring import KeyRing, digest_of
from services.gateway.limits.account import Account
from services.gateway.limits.verdict import Cost, Verdict, admit
from services.models.errors import AmbiguousKey, UnknownKey
from services.models.keys.glance import has_keys
from services.models.keys.mirror import KeyMirror
from services.models.keys.store import KeyStore, open_keys
from services.streams.keys import watching_keys
from tests.support.fake_logs import FakeKeys

LIMITS = KeyLimits(requests_per_minute=20, concurrent=15)
NOW_NS = 1_800_000_000_000_000_000
FAR_MS = 4_000_000_000_000
SECONDS = 5.0


def a_record(secret: str, **changes: object) -> KeyRecord:
    short = uuid.uuid4().hex[:10]
    record = KeyRecord(id=f"key_{short}", digest=digest_of(secret), name=f"app {short}")
    return msgspec.structs.replace(record, created_at_ms=1, **changes)


class AccountsContract:
    """Inherited by each implementation, which gives the fixture `buckets`: one for each gateway."""

    async def test_all_gateways_together_stay_below_every_limit(self, buckets: list[Keys]) -> None:
        key_id = f"key_{uuid.uuid4().hex}"
        accounts = [Account(bucket, key_id) for bucket in buckets]

        async def ask(account: Account, n: int) -> str:
            def change(usage: KeyUsage) -> tuple[KeyUsage, Verdict]:
                return admit(usage, LIMITS, Cost(1), f"g{n}", FAR_MS, NOW_NS)

            return (await account.apply(change)).refused_by

        told = await asyncio.gather(*(ask(each, n) for n, each in enumerate(accounts * 20)))
        assert told.count("") == LIMITS.concurrent
        looked = [await account.look() for account in accounts]
        assert len(looked[0].running) == LIMITS.concurrent
        assert all(usage == looked[0] for usage in looked)


class TestFakeBucket(AccountsContract):
    @pytest.fixture
    def buckets(self) -> list[Keys]:
        return [FakeKeys()] * 3


class TestRealBucket(AccountsContract):
    @pytest.fixture
    async def buckets(self, bus_settings: BusSettings, bus: Bus) -> AsyncIterator[list[Keys]]:
        others = [await connect(bus_settings, name="g") for _ in range(2)]
        yield [Bucket(each, subjects.LIMITS_BUCKET) for each in (bus, *others)]
        for other in others:
            await other.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[KeyStore]:
    opened = await open_keys(f"sqlite+aiosqlite:///{tmp_path}/keys.db")
    yield opened
    await opened.close()


async def test_a_key_comes_back_as_it_was_stored(store: KeyStore) -> None:
    record = a_record(
        "s",
        scopes=("read", "admin"),
        models=("a", "b"),
        limits=KeyLimits(requests_per_minute=1, tokens_per_minute=10**9, concurrent=3),
        content="hashes",
        expires_at_ms=FAR_MS,
    )
    await store.add(record)
    assert await store.all() == [record]


async def test_revoking_by_id_or_name(store: KeyStore) -> None:
    first, second = a_record("1", name="app"), a_record("2", name="app")
    await store.add(first)
    await store.add(second)
    with pytest.raises(AmbiguousKey):
        await store.revoke("app", 5)
    with pytest.raises(UnknownKey):
        await store.revoke("nobody", 5)
    assert (await store.revoke(first.id, 5)).revoked_at_ms == 5
    assert (await store.revoke("app", 6)).id == second.id
    assert (await store.revoke(first.id, 7)).revoked_at_ms == 5


async def test_every_change_of_the_table_is_noticed(store: KeyStore) -> None:
    seen = [await store.stand()]
    records = [a_record(str(n)) for n in range(2)]
    for record in records:
        await store.add(record)
        seen.append(await store.stand())
    for record in records:
        await store.revoke(record.id, 5)
        seen.append(await store.stand())
    assert len(set(seen)) == 5


async def test_the_mirror_tells_every_ring_and_heals_a_bucket_that_was_lost(
    bus: Bus, store: KeyStore
) -> None:
    bucket, ring = Bucket(bus, subjects.API_KEYS_BUCKET), KeyRing()

    async def open_rows() -> KeyStore:
        return store

    mirror = KeyMirror(open_rows, bucket, lambda: 9, poll_s=0.01)
    await store.add(a_record("mine"))
    async with watching_keys(bus, ring):
        running = asyncio.create_task(mirror.run())
        await until_found(ring, "mine", is_found=True)
        await bucket.delete(digest_of("mine"))
        await until_stored(bucket, "mine")
        await store.revoke((await store.all())[0].id, 5)
        await until_found(ring, "mine", is_found=False)
        running.cancel()
        await asyncio.wait([running])
    mirrored = await bucket.get(digest_of("mine"))
    assert mirrored is not None
    assert codec.decode(mirrored.value, KeyRecord).revoked_at_ms == 5


async def until_stored(bucket: Bucket, secret: str) -> None:
    async with asyncio.timeout(SECONDS):
        found = await bucket.get(digest_of(secret))
        while found is None:
            await asyncio.sleep(0.01)
            found = await bucket.get(digest_of(secret))


async def until_found(ring: KeyRing, secret: str, *, is_found: bool) -> None:
    async with asyncio.timeout(SECONDS):
        found = ring.find(secret)
        while (found is not None and found.key is not None) is not is_found:
            await asyncio.sleep(0.01)
            found = ring.find(secret)


async def test_a_key_that_nobody_can_read_opens_nothing_and_closes_the_door(bus: Bus) -> None:
    bucket, ring = Bucket(bus, subjects.API_KEYS_BUCKET), KeyRing()
    await bucket.put(digest_of("odd"), b"\xc1")
    async with watching_keys(bus, ring):
        assert ring.is_required
        assert ring.find("odd") is None
    await bucket.delete(digest_of("odd"))


async def test_a_glance_at_a_file_says_whether_there_ever_was_a_key(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "keys.db"
    url = f"sqlite+aiosqlite:///{path}"
    assert not has_keys(url)
    store = await open_keys(url)
    assert not has_keys(url)
    await store.add(a_record("s", revoked_at_ms=5))
    assert has_keys(url)
    await store.close()
    assert has_keys(url)
    path.write_bytes(b"no database" * 1000)
    assert has_keys(url)
    assert not has_keys("postgresql+asyncpg://x/y")
