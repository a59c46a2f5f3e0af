"""Children that stand in for the services, so that a launcher's own behaviour can be tried in fractions of a second.

`api` orders one engine and answers GET /health with 200 once that engine has made its file; `engine` makes
it, or does what STUB_ENGINE says: `refuse` (cannot load), `crash` (exit 3).
Run as a script without a command of its own, it is a launcher with these children.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from services.cli import launcher, lifeline, listen, settings
from services.cli.main import main
from services.cli.parse import parse

BEHAVIOUR = os.environ.get("STUB_ENGINE", "")


def _file() -> Path:
    return Path(os.environ["LLAMATAPE_DATA_DIR"]) / "engine-loaded"


def _engine() -> None:
    lifeline.hold()
    if BEHAVIOUR == "refuse":
        print("some noise\nerror: the model says no", file=sys.stderr)
        sys.exit(78)
    if BEHAVIOUR == "crash":
        print("error: the engine broke", file=sys.stderr)
        sys.exit(3)
    if BEHAVIOUR == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _file().write_text(str(os.getpid()))
    while True:
        signal.pause()


async def _api() -> None:
    from schemas import subjects
    from schemas.rpc import Done, StartEngine
    from services.bus.connection import connect
    from services.bus.rpc import ask

    values = parse([], os.environ)
    bus = await connect(settings.bus_settings(values), name="stub")
    for sock in listen.inherited():
        await asyncio.start_server(_answer, sock=sock)
    order = StartEngine(model_key="k", engine="e0", env={"LLAMA_ARG_MODEL": str(values["model"])})
    for _ in range(2):  # orders may be repeated
        await ask(bus, subjects.host_rpc(str(values["host_id"])), order, Done)
    await asyncio.Event().wait()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    status = b"200 OK" if _file().exists() else b"503 Loading"
    writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
    await writer.drain()
    writer.close()


def _launcher() -> None:
    stubs = (sys.executable, __file__)
    ground = launcher.Ground
    launcher.Ground = lambda **parts: ground(**parts, python=stubs)  # type: ignore[assignment, misc]
    main()


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        _engine()
    elif sys.argv[1] == "api":
        lifeline.hold()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(_api())
    else:
        _launcher()
