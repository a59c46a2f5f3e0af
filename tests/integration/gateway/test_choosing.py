"""Router mode: no model was named at the start."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.bus.connection import Bus
from services.gateway.choosing import MODEL_PATHS
from services.models.bootstrap import run_listing
from services.models.config import ModelsSettings
from tests.support.gateway import Gateway, running_gateway


@pytest.fixture
async def router(bus: Bus, tmp_path: Path) -> AsyncIterator[Gateway]:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "small.gguf").write_bytes(b"GGUF")
    settings = ModelsSettings(
        is_router=True,
        models_dir=str(folder),
        database_url=f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}",
    )
    async with run_listing(bus, settings), running_gateway(bus, is_router=True) as gateway:
        yield gateway


async def error_of(gateway: Gateway, method: str, path: str, **more: Any) -> tuple[int, str]:
    response = await gateway.client.request(method, path, **more)
    return response.status_code, response.json()["error"]["message"]


async def test_it_is_healthy_and_lists_what_there_is(router: Gateway, tmp_path: Path) -> None:
    for path in ("/health", "/v1/health"):
        assert (await router.client.get(path)).json() == {"status": "ok"}
    for path in ("/models", "/v1/models"):
        [model] = (await router.client.get(path)).json()["data"]
        assert (model["id"], model["source"], model["can_remove"]) == ("small", "models_dir", False)
        assert model["status"] == {"value": "unloaded", "args": []}
        assert model["created"] > 0


async def test_new_files_are_seen_when_one_asks_for_it(router: Gateway, tmp_path: Path) -> None:
    async def names(**query: str) -> list[str]:
        found = (await router.client.get("/v1/models", params=query)).json()["data"]
        return [model["id"] for model in found]

    assert await names() == ["small"]
    (tmp_path / "models" / "new.gguf").write_bytes(b"GGUF")
    assert await names(reload="1") == ["new", "small"]
    assert await names() == ["new", "small"]


@pytest.mark.parametrize("path", MODEL_PATHS)
async def test_posts_name_their_model(router: Gateway, path: str) -> None:
    missing = (400, "model name is missing from the request")
    path = path.format(slot=0)
    for body in ({}, {"model": ""}, {"model": 7}):
        assert await error_of(router, "POST", path, json=body) == missing
    unknown = await error_of(router, "POST", path, json={"model": "other"})
    assert unknown == (400, "model 'other' not found")
    status, message = await error_of(router, "POST", path, json={"model": "small"})
    assert (status, "start the server with it" in message) == (501, True)


async def test_gets_name_it_in_the_query(router: Gateway) -> None:
    assert (await error_of(router, "GET", "/slots"))[0] == 400
    for path in ("/slots", "/props"):
        assert (await error_of(router, "GET", path, params={"model": "other"}))[0] == 400
        assert (await error_of(router, "GET", path, params={"model": "small"}))[0] == 501


async def test_its_own_properties(router: Gateway) -> None:
    props = (await router.client.get("/props")).json()
    assert (props["role"], props["models_autoload"]) == ("router", False)
    assert props["build_info"].startswith("llamatape-")


async def test_orders(router: Gateway) -> None:
    async def order(verb: str, name: str) -> tuple[int, str]:
        return await error_of(router, "POST", f"/models/{verb}", json={"model": name})

    assert await order("load", "other") == (404, "model is not found")
    assert (await order("load", "small"))[0] == 501
    assert await order("unload", "other") == (400, "model is not found")
    assert await order("unload", "small") == (400, "model is not running")


async def test_what_needs_no_model_works(router: Gateway) -> None:
    assert (await router.client.get("/openapi.json")).status_code == 200
    stored = await router.client.get("/v1/responses/resp_0193")
    assert stored.status_code == 404
    missing = await router.client.get("/v1/stream", params={"conv_id": "none"})
    assert missing.status_code == 404


async def test_metrics_are_the_routers_own(bus: Bus) -> None:
    async with running_gateway(bus, is_router=True, has_metrics=True) as gateway:
        answer = await gateway.client.get("/metrics")
        assert answer.status_code == 200
        assert "llamatape_" in answer.text


async def test_without_a_models_service_it_says_try_again(bus: Bus) -> None:
    async with running_gateway(bus, is_router=True) as gateway:
        assert (await gateway.client.get("/v1/models")).status_code == 503
