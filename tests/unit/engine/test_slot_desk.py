"""Orders about slots: which names are files, and whose answer is whose."""

import asyncio

import pytest

from schemas.errors import INVALID_REQUEST, NOT_SUPPORTED, UNAVAILABLE, RequestError
from schemas.rpc import ChangeSlot
from services.engine.protocol import ActOnSlot, SlotActed
from services.engine.slot_desk import SlotDesk
from services.engine.slot_names import is_file_name


@pytest.mark.parametrize(
    "name", ["a", "slot1.bin", "ä ö", "a.b.c", "日本語.bin", "x" * 255, "-rf", "~"]
)
def test_names(name: str) -> None:
    assert is_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a..b",
        "a/b",
        "a\\b",
        "c:",
        "a*",
        "a?",
        '"',
        "<",
        "|",
        "\0",
        "a\n",
        "\x7f",
        "\x85",
        chr(0xD800),
        "\ufeff",
        "\ufffd",
        "\u2215",
        "\uff0e",
        " a",
        "a ",
        "a.",
        "x" * 256,
        "ä" * 128,
    ],
)
def test_no_names(name: str) -> None:
    assert not is_file_name(name)


def order(action: str = "save", name: str = "x") -> ChangeSlot:
    return ChangeSlot(slot=1, action=action, filename=name)


async def test_answers_find_their_orders() -> None:
    sent: list[ActOnSlot] = []
    desk = SlotDesk(sent.append, "/saved")
    asking = [asyncio.create_task(desk.change(order(name=name))) for name in "ab"]
    await asyncio.sleep(0)
    assert [action.path for action in sent] == ["/saved/a", "/saved/b"]
    for action in reversed(sent):
        desk.on_acted(SlotActed(id=action.id, slot=1, n_held=0, n_tokens=action.id))
    found = await asyncio.gather(*asking)
    assert [changed.n_tokens for changed in found] == [action.id for action in sent]
    desk.on_acted(SlotActed(id=99, slot=1, n_held=0))


@pytest.mark.parametrize(
    ("folder", "bad", "code"),
    [
        ("", order(), NOT_SUPPORTED),
        ("", order("erase"), NOT_SUPPORTED),
        ("/saved", order("paint"), INVALID_REQUEST),
        ("/saved", order(name="../x"), INVALID_REQUEST),
    ],
)
async def test_what_is_refused_reaches_nobody(folder: str, bad: ChangeSlot, code: str) -> None:
    sent: list[ActOnSlot] = []
    with pytest.raises(RequestError) as caught:
        await SlotDesk(sent.append, folder).change(bad)
    assert (caught.value.problem.code, sent) == (code, [])


async def test_refusals_and_the_decoders_death_are_told() -> None:
    sent: list[ActOnSlot] = []
    desk = SlotDesk(sent.append, "/saved")
    asking = [asyncio.create_task(desk.change(order("erase"))) for _ in range(2)]
    await asyncio.sleep(0)
    problem = RequestError.invalid("no").problem
    desk.on_acted(SlotActed(id=sent[0].id, slot=1, n_held=0, problem=problem))
    desk.on_gone()
    found = await asyncio.gather(*asking, return_exceptions=True)
    codes = [error.problem.code for error in found if isinstance(error, RequestError)]
    assert codes == [INVALID_REQUEST, UNAVAILABLE]
