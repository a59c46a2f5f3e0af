"""Server-sent event frames as bytes."""

import orjson

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"


def to_json(value: object) -> bytes:
    """JSON as llama-server writes it: compact, UTF-8. Keys keep their order."""
    return orjson.dumps(value)


def data_frame(value: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(value)


def event_frame(name: str, value: object) -> bytes:
    """A frame with a named event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(value))


def numbered(frame: bytes, number: int) -> bytes:
    """`frame` with the event id that a resuming client sends back. number: from 1."""
    return b"id: %d\n%b" % (number, frame)
