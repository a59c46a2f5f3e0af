"""How a model writes thoughts, content and tool calls: one description, plain data.

The engine derives it from the chat template and writes it, as JSON, into `Prepared` and `Requested`;
grammars and parsers are made of it. Whitespace at the ends of a marker and between its words is what
the template writes; a parser takes any.
"""

import msgspec

from schemas.errors import SchemaError
from schemas.struct import Message

TEXT = "text"
NAME = "name"
ID = "id"
INDEX = "index"
ANY = "any"
KEY = "key"
TYPE = "type"
OBJECT = "object"
ARGUMENTS = "arguments"
PARAMETERS = "parameters"

RAW = "raw"
JSON = "json"
PYTHON = "python"
QUOTED = "quoted"
ELEMENTS = "elements"


class Part(Message, frozen=True, kw_only=True):
    """One part of a pattern. kind: TEXT (`text` itself), NAME of the function, ID of the call, INDEX
    (digits), ANY (whatever stands before the next part), KEY (name of a parameter), TYPE (a word for
    the value's JSON type), OBJECT (name and arguments in one JSON object), ARGUMENTS (one object),
    PARAMETERS (one after the other)."""

    kind: str
    text: str = ""


class Parameters(Message, frozen=True, kw_only=True):
    """How single arguments are written: `head`, the value, `tail`, with `separator` between them.

    head: parts, a KEY among them. notation: of values: RAW (strings as they are, other values as
    JSON), JSON, PYTHON, or ELEMENTS (nested tags under `namespace`). types: JSON type → the word of
    a TYPE part. has_cdata: a string may stand between `<![CDATA[` and `]]>`.
    """

    head: tuple[Part, ...]
    tail: str = ""
    separator: str = ""
    notation: str = RAW
    types: dict[str, str] = {}
    namespace: str = ""
    has_cdata: bool = False


class Calls(Message, frozen=True, kw_only=True):
    """How tool calls are written: `start`, calls by one of `patterns`, `separator` between them, `end`.

    patterns: the first is the template's, the others are what models also write. name_keys,
    arguments_keys, id_keys: where they stand in an OBJECT, outermost key first; no name_keys: the name
    is the key and its value the arguments. has_late_id: the id comes after the arguments.
    notation: of an OBJECT or of ARGUMENTS: JSON or QUOTED (bare keys, strings in `quote`). id_chars: length that the template
    demands of ids, 0 for any. id_parts: what an id is made of, where the model writes none.
    cuts_thoughts: a call may begin inside thoughts and ends them.
    """

    start: str = ""
    end: str = ""
    separator: str = ""
    patterns: tuple[tuple[Part, ...], ...]
    name_keys: tuple[str, ...] = ()
    arguments_keys: tuple[str, ...] = ()
    id_keys: tuple[str, ...] = ()
    has_late_id: bool = False
    id_is_number: bool = False
    notation: str = JSON
    quote: str = ""
    parameters: Parameters | None = None
    is_parallel: bool = True
    id_chars: int = 0
    id_parts: tuple[Part, ...] = ()
    cuts_thoughts: bool = False


class Shape(Message, frozen=True, kw_only=True):
    """What a value may be. types: JSON types, none: unknown. properties, items: of what is inside."""

    types: tuple[str, ...] = ()
    properties: dict[str, "Shape"] = {}
    items: "Shape | None" = None


class Tool(Message, frozen=True, kw_only=True):
    """A function that the request offers. parameters: only where their types decide how text is read."""

    name: str
    parameters: dict[str, Shape] = {}


class OutputFormat(Message, frozen=True, kw_only=True):
    """How one model answers one request.

    thought_start, thought_end: around thoughts; an empty start with an end: thoughts begin the answer.
    content_starts, content_end: around content, where it is marked. turns: what opens a further part
    of the answer and shows nothing. has_many_thoughts: thoughts may come again after content.
    Of the request: calls: None where it offers no tools. prefix: the beginning of the answer that
    stands in the prompt; is_continued: the client knows it already. thoughts: where they go: field,
    content (as written) or both.
    """

    thought_start: str = ""
    thought_end: str = ""
    content_starts: tuple[str, ...] = ()
    content_end: str = ""
    turns: tuple[str, ...] = ()
    has_many_thoughts: bool = False
    calls: Calls | None = None
    tools: tuple[Tool, ...] = ()
    prefix: str = ""
    is_continued: bool = False
    thoughts: str = "field"


def to_json(description: OutputFormat) -> bytes:
    return msgspec.json.encode(description)


def from_json(data: bytes) -> OutputFormat:
    """Raises SchemaError."""
    try:
        return msgspec.json.decode(data, type=OutputFormat)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SchemaError(f"not an output format: {error}") from error
