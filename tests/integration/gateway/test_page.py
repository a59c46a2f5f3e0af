"""The page at `/`, a folder in its place, or none."""

import json
from pathlib import Path

import pytest

from services.bus.connection import Bus
from tests.support.gateway import running_gateway

FILES = {
    "/": "text/html; charset=utf-8",
    "/index.html": "text/html; charset=utf-8",
    "/_app/chat.js": "text/javascript; charset=utf-8",
    "/_app/events.js": "text/javascript; charset=utf-8",
    "/_app/style.css": "text/css; charset=utf-8",
    "/_app/icon.svg": "image/svg+xml",
    "/_app/version.json": "application/json; charset=utf-8",
    "/manifest.webmanifest": "application/manifest+json",
    "/sw.js": "text/javascript; charset=utf-8",
}


async def test_the_page_needs_no_key_and_no_model(bus: Bus) -> None:
    async with running_gateway(bus, has_page=True, api_keys=("secret",)) as gateway:
        for path, kind in FILES.items():
            response = await gateway.client.get(path)
            assert (path, response.status_code) == (path, 200)
            assert response.headers["content-type"] == kind
            assert response.headers["cache-control"] == "no-cache"
            assert "default-src 'self'" in response.headers["content-security-policy"]
            assert (await gateway.client.head(path)).status_code == 200
        page = (await gateway.client.get("/")).text
        assert page.startswith("<!doctype html>")
        assert "<title>Llamatape</title>" in page
        assert (await gateway.client.get("/v1/models")).status_code in (401, 503)


async def test_what_the_page_names_is_there(bus: Bus) -> None:
    async with running_gateway(bus, has_page=True) as gateway:
        page = (await gateway.client.get("/")).text
        named = [
            part.split('"')[0] for word in ("src=", "href=") for part in page.split(f'{word}"')[1:]
        ]
        assert "_app/chat.js" in named
        for name in named:
            if name.startswith(("_app", "manifest")):
                assert (await gateway.client.get(f"/{name}")).status_code == 200
        manifest = json.loads((await gateway.client.get("/manifest.webmanifest")).text)
        assert manifest["name"] == "Llamatape"


async def test_no_page(bus: Bus) -> None:
    async with running_gateway(bus) as gateway:
        assert (await gateway.client.get("/")).status_code == 404
        assert "unregister" in (await gateway.client.get("/sw.js")).text


@pytest.mark.parametrize("has_worker", [False, True])
async def test_a_folder_in_its_place(bus: Bus, tmp_path: Path, has_worker: bool) -> None:
    (tmp_path / "index.html").write_text("mine")
    if has_worker:
        (tmp_path / "sw.js").write_text("// mine")
    folder = str(tmp_path)
    async with running_gateway(bus, has_page=True, static_dir=folder) as gateway:
        assert (await gateway.client.get("/")).text == "mine"
        worker = (await gateway.client.get("/sw.js")).text
        assert ("mine" in worker, "unregister" in worker) == (has_worker, not has_worker)
