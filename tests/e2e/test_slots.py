"""Slots as clients see them: listed, addressed among two engines, saved, restored, erased, shifted."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import platform

FRANCE = "What is the capital of France?"
GERMANY = "What is the capital of Germany?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("slots") / "saved"
    found.mkdir()
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    """Two engines with two slots each."""
    flags = ("-np", "2", "-c", "512", "--engines", "2", "--slot-save-path", str(folder))
    with (
        platform.serve(folder.parent, platform.TINY, *flags) as session,
        platform.client(platform.url_of(session)) as found,
    ):
        yield found


def complete(client: httpx.Client, text: str, **more: Any) -> dict[str, Any]:
    body = {"prompt": text, "n_predict": 4, "temperature": 0, **more}
    answer = client.post("/completion", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def act(client: httpx.Client, slot: object, action: str, name: str = "") -> httpx.Response:
    body = {"filename": name} if name else None
    return client.post(f"/slots/{slot}?action={action}", json=body)


def slots(client: httpx.Client) -> list[dict[str, Any]]:
    """All four; the second engine may load a little later than the first."""
    while len(found := client.get("/slots").json()) < 4:
        assert client.get("/health").status_code == 200
    return found


def test_slots_of_all_engines_have_numbers_of_their_own(client: httpx.Client) -> None:
    shown = slots(client)
    assert [slot["id"] for slot in shown] == [0, 1, 2, 3]
    assert {slot["n_ctx"] for slot in shown} == {256}
    assert client.get("/props").json()["default_generation_settings"]["n_ctx"] == 256


def test_a_request_gets_the_slot_that_it_asks_for(client: httpx.Client) -> None:
    slots(client)
    for asked, given in ((3, 3), (0, 0), (6, 2)):
        complete(client, FRANCE, id_slot=asked, cache_prompt=False)
        assert newest(client)["id"] == given


def newest(client: httpx.Client) -> dict[str, Any]:
    """The slot that worked last: ids of generations begin with their time."""
    used = [slot for slot in slots(client) if "generation_id" in slot]
    return max(used, key=lambda slot: slot["generation_id"])


def test_what_a_slot_shows_of_its_work(client: httpx.Client) -> None:
    slots(client)
    complete(client, FRANCE, id_slot=1, cache_prompt=False, n_predict=20)
    shown = slots(client)[1]
    assert shown["is_processing"] is False
    assert shown["n_prompt_tokens"] == 21 + 19, (
        "what it holds; the rest is reset, as llama-server's"
    )
    assert (shown["n_prompt_tokens_processed"], shown["n_prompt_tokens_cache"]) == (0, 0)
    assert shown["next_token"] == [
        {"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}
    ]
    assert shown["params"]["n_predict"] == 20
    assert {"id_task", "speculative", "n_ctx"} <= shown.keys()


def test_a_slot_is_saved_on_one_engine_and_restored_on_another(
    client: httpx.Client, folder: Path
) -> None:
    slots(client)
    complete(client, FRANCE, id_slot=1, n_predict=64, cache_prompt=False)
    saved = act(client, 1, "save", "france.bin").json()
    assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (1, "france.bin", 84)
    assert saved["n_written"] == (folder / "france.bin").stat().st_size
    assert saved["timings"]["save_ms"] > 0
    restored = act(client, 2, "restore", "france.bin").json()
    assert (restored["id_slot"], restored["n_restored"]) == (2, 84)
    assert restored["n_read"] == saved["n_written"]
    assert slots(client)[2].get("n_prompt_tokens") in (None, 84)
    assert complete(client, GERMANY, id_slot=2)["timings"]["prompt_n"] == 6
    assert act(client, 2, "erase").json() == {"id_slot": 2, "n_erased": 24}
    assert complete(client, GERMANY, id_slot=2)["timings"]["cache_n"] == 0


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", "a\\b", "/etc/passwd", "..", ".", " x", "x ", "x.", "x\n", "x" * 256, ""],
)
def test_names_lead_nowhere_else(client: httpx.Client, folder: Path, name: str) -> None:
    before = sorted(folder.rglob("*"))
    answer = client.post("/slots/0?action=save", json={"filename": name})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("slot", "action", "body"),
    [
        ("x", "erase", None),
        ("-1", "erase", None),
        ("0", "paint", None),
        ("0", "", None),
        ("0", "save", {}),
        ("0", "save", {"filename": 7}),
        ("0", "restore", {"filename": "missing.bin"}),
    ],
)
def test_bad_orders_are_400(client: httpx.Client, slot: str, action: str, body: object) -> None:
    answer = client.post(f"/slots/{slot}?action={action}", json=body)
    assert answer.status_code == 400, answer.text


def test_a_busy_server_says_so(client: httpx.Client) -> None:
    slots(client)
    assert client.get("/slots?fail_on_no_slot=1").status_code == 200


def test_without_a_folder_nothing_is_saved_and_shared_slots_are_large(tmp_path: Path) -> None:
    with (
        platform.serve(tmp_path, platform.TINY, "-c", "512") as session,
        platform.client(platform.url_of(session)) as client,
    ):
        for action in ("save", "restore", "erase"):
            assert act(client, 0, action, "x").status_code == 501
        assert [slot["n_ctx"] for slot in client.get("/slots").json()] == [512] * 4
        assert complete(client, FRANCE, n_predict=-1)["truncated"] is True


# -- context shift ---------------------------------------------------------------------------------

LONG = {"prompt": FRANCE, "n_predict": 1500, "temperature": 0.8, "seed": 3, "ignore_eos": True}


def test_an_answer_longer_than_the_context_survives_its_decoder(tmp_path: Path) -> None:
    """Killed after several shifts: the rest is what an undisturbed decoder says."""
    with (
        platform.serve(
            tmp_path, platform.TINY, "-np", "1", "-c", "256", "--context-shift"
        ) as session,
        platform.client(platform.url_of(session)) as client,
    ):
        text, killed, chunk = "", False, dict[str, Any]()
        with client.stream("POST", "/completion", json=LONG | {"stream": True}) as answer:
            for frame in (line[6:] for line in answer.iter_lines() if line.startswith("data: ")):
                chunk = json.loads(frame)
                text += chunk["content"]
                if not killed and len(text) > 2000:
                    os.kill(session.one("decoder"), signal.SIGKILL)
                    killed = True
        assert chunk["truncated"] is True
        assert (chunk["tokens_predicted"], chunk["stop_type"]) == (1500, "limit")
        whole = complete(client, FRANCE, **{k: v for k, v in LONG.items() if k != "prompt"})
    assert killed
    assert text == whole["content"]
