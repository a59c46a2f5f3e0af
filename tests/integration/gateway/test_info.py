"""What the gateway tells without generating."""

import pytest

from schemas.lifecycle import FAILED, LOADING
from services.bus.connection import Bus
from tests.support.gateway import Gateway, healthy, running_gateway
from tests.support.scripted_engine import ScriptedEngine

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
EVERYTHING = [
    ("GET", "/health"),
    ("GET", "/v1/health"),
    ("GET", "/v1/models"),
    ("GET", "/props"),
    ("GET", "/nowhere"),
    ("POST", CHAT),
    ("POST", "/tokenize"),
]


async def test_before_the_first_load_everything_is_loading(gateway: Gateway) -> None:
    for method, path in EVERYTHING:
        response = await gateway.client.request(method, path)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json() == {
            "error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        }


async def test_but_old_streams_can_be_asked_for(gateway: Gateway) -> None:
    response = await gateway.client.get("/v1/stream", params={"conv_id": "none"})
    assert response.status_code == 404


async def test_a_load_that_failed_says_why(bus: Bus, gateway: Gateway) -> None:
    engine = ScriptedEngine(bus, gateway.model_key)
    await engine.start(status=FAILED, error="not a GGUF file")
    await engine.stop()
    async with running_gateway(bus, gateway.model_key) as later:
        response = await later.client.get("/health")
        assert response.status_code == 503
        assert "not a GGUF file" in response.json()["error"]["message"]


async def test_during_a_later_load_health_is_loading_and_requests_wait(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    await engine.announce(LOADING)
    await healthy(gateway, 503)
    assert (await gateway.client.get("/v1/models")).status_code == 200
    assert (await gateway.client.post(CHAT, json=BODY)).status_code == 200


async def test_health(engine: ScriptedEngine, gateway: Gateway) -> None:
    for path in ("/health", "/v1/health"):
        assert (await gateway.client.get(path)).json() == {"status": "ok"}


async def test_models(engine: ScriptedEngine, gateway: Gateway) -> None:
    found = (await gateway.client.get("/v1/models")).json()
    assert found == (await gateway.client.get("/models")).json()
    assert found["object"] == "list"
    assert found["models"][0]["name"] == "tiny"
    assert found["data"] == [
        {
            "id": "tiny",
            "aliases": ["tiny"],
            "tags": [],
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": "llamacpp",
            "meta": {
                "vocab_type": 1,
                "n_vocab": 1000,
                "n_ctx": 256,
                "n_ctx_train": 2048,
                "n_embd": 64,
                "n_params": 1_000_000,
                "size": 2_000_000,
                "ftype": "Q4_1",
            },
        }
    ]


async def test_props(engine: ScriptedEngine, gateway: Gateway) -> None:
    props = (await gateway.client.get("/props")).json()
    assert props["total_slots"] == 4
    assert props["model_path"] == "models/tiny.gguf"
    assert props["chat_template"] == "{{ messages }}"
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "</s>")
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}
    assert props["build_info"] == "b1-scripted"
    settings = props["default_generation_settings"]
    assert settings["n_ctx"] == 256
    assert settings["params"]["top_k"] == 40
    assert "stop" not in settings["params"]


async def test_props_are_changed_only_when_allowed(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway
) -> None:
    response = await gateway.client.post("/props", json={})
    assert response.status_code == 501
    assert response.json()["error"]["type"] == "not_supported_error"
    async with running_gateway(bus, gateway.model_key, has_props_post=True) as open_gateway:
        await healthy(open_gateway)
        response = await open_gateway.client.post("/props", json={})
        assert response.json() == {"success": True}


@pytest.mark.parametrize("is_on", [True, False])
async def test_props_tell_what_is_switched_on(
    bus: Bus, engine: ScriptedEngine, gateway: Gateway, is_on: bool
) -> None:
    async with running_gateway(
        bus, gateway.model_key, has_slots=is_on, has_metrics=is_on, has_props_post=is_on
    ) as other:
        await healthy(other)
        props = (await other.client.get("/props")).json()
        for name, path in (("slots", "/slots"), ("metrics", "/metrics")):
            assert props[f"endpoint_{name}"] is is_on
            assert (await other.client.get(path)).status_code == (200 if is_on else 501)
        assert props["endpoint_props"] is is_on


async def test_slots(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    slots = (await gateway.client.get("/slots")).json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert slots[0] == {"id": 0, "n_ctx": 256, "speculative": False, "is_processing": False}
    assert (await gateway.client.get("/slots?fail_on_no_slot=1")).status_code == 200
    async with running_gateway(bus, gateway.model_key, has_slots=False) as closed:
        await healthy(closed)
        assert (await closed.client.get("/slots")).status_code == 501


async def test_the_slots_of_all_engines(bus: Bus, engine: ScriptedEngine, gateway: Gateway) -> None:
    second = ScriptedEngine(bus, gateway.model_key, engine="e2", ordinal=1)
    await second.start()
    slots = (await gateway.client.get("/slots")).json()
    await second.stop()
    assert [slot["id"] for slot in slots] == list(range(8))


async def test_no_free_slot_is_a_503_on_demand(engine: ScriptedEngine, gateway: Gateway) -> None:
    engine.script.n_slots = 0
    response = await gateway.client.get("/slots?fail_on_no_slot=1")
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "no slot available"


async def test_tokenize_and_back(engine: ScriptedEngine, gateway: Gateway) -> None:
    post = gateway.client.post
    assert (await post("/tokenize", json={"content": "ab"})).json() == {"tokens": [97, 98]}
    assert (await post("/tokenize", json={"content": ["a", 5]})).json() == {"tokens": [97, 5]}
    assert (await post("/tokenize", json={})).json() == {"tokens": []}
    pieces = (await post("/tokenize", json={"content": "aÿ", "with_pieces": True})).json()
    assert pieces == {"tokens": [{"id": 97, "piece": "a"}, {"id": 255, "piece": [255]}]}
    assert (await post("/detokenize", json={"tokens": [97, 98]})).json() == {"content": "ab"}
    assert (await post("/detokenize", json={})).json() == {"content": ""}


async def test_apply_template(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.post("/apply-template", json=BODY)
    assert response.json() == {"prompt": "<user>hi"}


async def test_unknown_routes_and_methods(engine: ScriptedEngine, gateway: Gateway) -> None:
    response = await gateway.client.get("/nowhere")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "File Not Found"
    assert (await gateway.client.get(CHAT)).status_code == 405


async def test_a_slash_at_the_end_is_another_route_not_a_redirect(
    engine: ScriptedEngine, gateway: Gateway
) -> None:
    for method, path in (("GET", "/health/"), ("POST", "/v1/chat/completions/")):
        assert (await gateway.client.request(method, path)).status_code == 404
