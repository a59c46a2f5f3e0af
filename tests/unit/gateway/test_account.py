"""One key's entry: many changes at once, other gateways in between, a broker that is away."""

import asyncio

import pytest

from schemas import codec
from schemas.keys import KeyUsage
from services.bus.errors import BusUnavailable
from services.gateway.limits.account import Account
from tests.support.fake_logs import FakeKeys, FakeValue


def add(usage: KeyUsage) -> tuple[KeyUsage, int]:
    """One more; what there was before."""
    before = usage.requests_until_ns
    return KeyUsage(requests_until_ns=before + 1), before


def refuse_from_ten(usage: KeyUsage) -> tuple[KeyUsage, str]:
    if usage.requests_until_ns >= 10:
        return usage, "refused"
    return add(usage)[0], "taken"


class Keys(FakeKeys):
    """Counts, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.n_looks = self.n_swaps = 0
        self.is_away = False

    async def get(self, key: str) -> FakeValue | None:
        self.n_looks += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise BusUnavailable("away")
        return await super().get(key)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self.n_swaps += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise BusUnavailable("away")
        return await super().update(key, value, revision)

    def stored(self) -> int:
        return codec.decode(self._values["me"].value, KeyUsage).requests_until_ns

    def meddle(self, n: int) -> None:
        """Another gateway writes."""
        self.put("me", codec.encode(KeyUsage(requests_until_ns=n)))


async def test_a_change_is_one_swap_once_the_entry_is_known() -> None:
    keys = Keys()
    account = Account(keys, "me")
    assert [await account.apply(add) for _ in range(3)] == [0, 1, 2]
    assert (keys.n_looks, keys.n_swaps, keys.stored()) == (1, 3, 3)
    assert account.is_idle


async def test_changes_that_come_together_go_together() -> None:
    keys = Keys()
    account = Account(keys, "me")
    told = await asyncio.gather(*(account.apply(add) for _ in range(100)))
    assert sorted(told) == list(range(100))
    assert keys.stored() == 100
    assert keys.n_swaps <= 2


async def test_a_lost_swap_is_tried_again_on_what_is_there() -> None:
    keys = Keys()
    account = Account(keys, "me")
    await account.apply(add)
    keys.before_write = lambda: keys.meddle(7)
    assert await account.apply(add) == 7
    assert keys.stored() == 8


async def test_a_refusal_is_never_given_on_a_stale_view() -> None:
    keys = Keys()
    account = Account(keys, "me")
    for _ in range(10):
        assert await account.apply(refuse_from_ten) == "taken"
    keys.meddle(9)
    assert await account.apply(refuse_from_ten) == "taken"
    assert await account.apply(refuse_from_ten) == "refused"
    assert keys.stored() == 10


async def test_many_gateways_never_take_more_than_there_is() -> None:
    keys = Keys()
    accounts = [Account(keys, "me") for _ in range(5)]
    told = await asyncio.gather(*(each.apply(refuse_from_ten) for each in accounts * 6))
    assert sorted(told) == ["refused"] * 20 + ["taken"] * 10
    assert keys.stored() == 10


async def test_who_asks_hears_that_the_broker_is_away_and_the_next_is_served() -> None:
    keys = Keys()
    account = Account(keys, "me")
    await account.apply(add)
    keys.is_away = True
    with pytest.raises(BusUnavailable):
        await account.apply(add)
    keys.is_away = False
    keys.meddle(5)
    assert await account.apply(add) == 5


async def test_who_leaves_while_waiting_disturbs_nobody() -> None:
    keys = Keys()
    account = Account(keys, "me")
    leaving = asyncio.create_task(account.apply(add))
    staying = asyncio.create_task(account.apply(add))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 1
    assert keys.stored() == 2


async def test_an_unreadable_entry_is_like_a_broker_that_is_away() -> None:
    keys = Keys()
    keys.put("me", b"\xc1")
    with pytest.raises(BusUnavailable):
        await Account(keys, "me").apply(add)
