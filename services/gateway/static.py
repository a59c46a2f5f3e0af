"""Files for browsers, wherever no route answers: a user's folder (`--path`), else our own page."""

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path

import orjson
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.edge.errors import JSON_TYPE

Made = Callable[[], Response]

READING = ("GET", "HEAD")
PAGE = Path(__file__).with_name("web")
WORKER = "sw.js"
PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""The page runs nothing but its own files, and a new version is seen at the next load."""


def install_static(app: FastAPI, folder: str, *, has_page: bool) -> None:
    """Serve the files below `folder`, `index.html` for a folder; without one our page, if `has_page`.

    Routes come first. Where our page is not shown there is still our `sw.js`, which removes the
    service worker that an earlier page left in browsers; a folder's own goes before it.
    """
    made: dict[str, Made] = {}
    if not (folder and os.path.isfile(os.path.join(folder, WORKER))):
        made[f"/{WORKER}"] = _worker
    if folder:
        _serve(app, made, StaticFiles(directory=folder, html=True))
    elif has_page:
        files = _with_headers(StaticFiles(directory=PAGE, html=True))
        _serve(app, made | {"/_app/version.json": _version}, files)
    else:
        _serve(app, made, app.router.default)


def _serve(app: FastAPI, made: dict[str, Made], files: ASGIApp) -> None:
    """made: responses that are no plain files, by path."""
    nothing = app.router.default

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in READING:
            return await nothing(scope, receive, send)
        response = made.get(scope["path"])
        return await (files if response is None else response())(scope, receive, send)

    app.router.default = serve


def _with_headers(files: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(PAGE_HEADERS)
            await send(message)

        await files(scope, receive, send_with_headers)

    return serve


def _version() -> Response:
    version = orjson.dumps({"version": importlib.metadata.version("llamatape")})
    return Response(version, media_type=JSON_TYPE, headers=PAGE_HEADERS)


def _worker() -> Response:
    return FileResponse(PAGE / WORKER, media_type="text/javascript", headers=PAGE_HEADERS)
