"""An order is carried out when its effect is stored, and no sooner."""

import asyncio

from schemas.events import Controlled, Heartbeat
from services.engine.orders import Orders

CONTROLLED = Controlled(choice=0, index=3, action="reasoning_end")


def given(orders: Orders) -> tuple["asyncio.Task[bool]", list[str]]:
    sent: list[str] = []
    return asyncio.create_task(orders.give(lambda: sent.append("sent"))), sent


async def turn() -> None:
    await asyncio.sleep(0)


async def test_it_waits_for_the_log() -> None:
    orders = Orders()
    order, sent = given(orders)
    await turn()
    assert sent == ["sent"]
    orders.on_taken(1)
    orders.on_stored([Heartbeat(elapsed_us=1)])
    await turn()
    assert not order.done()
    orders.on_stored([CONTROLLED])
    assert await order


async def test_what_changes_nothing_is_done_at_once() -> None:
    orders = Orders()
    order, _ = given(orders)
    await turn()
    orders.on_taken(0)
    assert await order


async def test_two_orders_are_taken_in_order() -> None:
    orders = Orders()
    first, _ = given(orders)
    second, _ = given(orders)
    await turn()
    orders.on_taken(1)
    orders.on_taken(0)
    assert await second
    assert not first.done()
    orders.on_stored([CONTROLLED])
    assert await first


async def test_an_end_before_that_is_told() -> None:
    orders = Orders()
    first, _ = given(orders)
    second, _ = given(orders)
    await turn()
    orders.on_taken(1)
    orders.close()
    assert [await first, await second] == [False, False]
