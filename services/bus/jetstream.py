"""JetStream's API, asked directly."""

import base64
from typing import Any, NamedTuple, cast

import nats.errors
import orjson

from services.bus.connection import API_TIMEOUT_S, Bus
from services.bus.errors import BusUnavailable
from services.bus.requests import Requests

NOT_FOUND = 404


class LastMessage(NamedTuple):
    """seq: its stream sequence. headers: its header block, empty for none."""

    seq: int
    headers: bytes
    data: bytes


async def api(bus: Bus, verb: str, body: dict[str, object] | None = None) -> dict[str, Any]:
    """One call, e.g. `STREAM.INFO.X`; the reply may hold `error`. Raises BusUnavailable."""
    data = b"" if body is None else orjson.dumps(body)
    try:
        reply = await bus.part(Requests).ask(f"$JS.API.{verb}", data, API_TIMEOUT_S)
    except (TimeoutError, nats.errors.NoRespondersError) as error:
        raise BusUnavailable(f"no reply to {verb}: {error!r}") from error
    return cast("dict[str, Any]", orjson.loads(reply))


async def last_message(bus: Bus, stream: str, subject: str) -> LastMessage | None:
    """The last message of a subject, from the stream's leader. Raises BusUnavailable."""
    reply = await api(bus, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    if (error := reply.get("error")) is None:
        found = reply["message"]
        headers, data = (base64.b64decode(found.get(name, "")) for name in ("hdrs", "data"))
        return LastMessage(found["seq"], headers, data)
    if error.get("code") == NOT_FOUND:
        return None
    raise BusUnavailable(f"cannot read {subject}: {error}")
