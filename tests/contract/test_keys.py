"""What conversations expect of a bucket: the same suite for the fake and the broker's."""

import pytest

from schemas import subjects
from services.bus.connection import Bus
from services.bus.errors import KeyConflict
from services.bus.keys import Keys
from services.bus.kv import Bucket
from tests.support import events
from tests.support.fake_logs import FakeKeys


def key_of(conversation: str) -> str:
    return subjects.conversation_key("me", conversation)


class KeysContract:
    """Inherited by each implementation, which gives the fixture `keys`."""

    async def test_a_value_is_created_once_and_updated_by_revision(self, keys: Keys) -> None:
        key = key_of(events.new_id())
        assert await keys.get(key) is None
        first = await keys.create(key, b"1")
        with pytest.raises(KeyConflict):
            await keys.create(key, b"2")
        second = await keys.update(key, b"2", first)
        assert second > first
        with pytest.raises(KeyConflict):
            await keys.update(key, b"3", first)
        stored = await keys.get(key)
        assert stored is not None
        assert (stored.value, stored.revision) == (b"2", second)

    async def test_a_deleted_key_is_gone_and_can_be_created_again(self, keys: Keys) -> None:
        key = key_of(events.new_id())
        revision = await keys.create(key, b"1")
        await keys.delete(key)
        await keys.delete(key)
        assert await keys.get(key) is None
        with pytest.raises(KeyConflict):
            await keys.update(key, b"2", revision)
        assert await keys.create(key, b"2") > revision

    async def test_entries_of_a_pattern(self, keys: Keys) -> None:
        base = events.new_id()
        await keys.create(key_of(base), b"bare")
        await keys.create(key_of(f"{base}::a/b"), b"a/b")
        await keys.create(key_of(events.new_id()), b"other")
        found = await keys.entries(subjects.conversation_variants("me", base))
        assert found == {key_of(base): b"bare", key_of(f"{base}::a/b"): b"a/b"}
        assert await keys.entries(subjects.conversation_variants("you", base)) == {}


class TestFakeKeys(KeysContract):
    @pytest.fixture
    def keys(self) -> Keys:
        return FakeKeys()


class TestBucket(KeysContract):
    @pytest.fixture
    def keys(self, bus: Bus) -> Keys:
        return Bucket(bus, subjects.CONVERSATIONS_BUCKET)
