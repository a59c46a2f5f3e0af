"""Files of a folder (`--path`), wherever no route answers."""

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

READING = ("GET", "HEAD")


def install_static(app: FastAPI, folder: str) -> None:
    """Serve the files below `folder`, `index.html` for a folder; routes come first."""
    if not folder:
        return
    files, nothing = StaticFiles(directory=folder, html=True), app.router.default

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["type"] == "http" and scope["method"] in READING
        await (files if is_file else nothing)(scope, receive, send)

    app.router.default = serve
