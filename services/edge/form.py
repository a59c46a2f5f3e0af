"""Bodies of HTML forms (`multipart/form-data`) as JSON objects, as llama-server reads them. Pure.

Fields become strings, a field that comes several times a list; files are left out.
"""

from collections.abc import Iterator
from email.message import Message

from schemas.errors import RequestError

FORM = "multipart/form-data"
MAX_FIELDS = 1000
MAX_HEAD_BYTES = 4096
"""Of one field: what reads them may be slow over long ones."""


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == FORM


def form_fields(body: bytes, content_type: str) -> dict[str, object]:
    """The fields of a form. Raises RequestError where there is no boundary, or no end."""
    boundary = _parsed(content_type, "content-type").get_boundary()
    if not boundary:
        raise RequestError.invalid("the form has no boundary")
    fields: dict[str, list[str]] = {}
    for name, text in _fields(body, boundary.encode("latin-1", "replace")):
        fields.setdefault(name, []).append(text)
    return {name: texts if len(texts) > 1 else texts[0] for name, texts in fields.items()}


def _fields(body: bytes, boundary: bytes) -> Iterator[tuple[str, str]]:
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_FIELDS + 2)
    for part in parts[1:]:
        if part.startswith(b"--"):
            return
        head, _, content = part.partition(b"\r\n\r\n")
        name = _name_in(head[:MAX_HEAD_BYTES].decode("utf-8", "replace"))
        if name is not None:
            yield name, content.decode("utf-8", "replace")
    raise RequestError.invalid(f"the form has no end, or more than {MAX_FIELDS} fields")


def _name_in(head: str) -> str | None:
    """The name of a field; None for a file, and for what is no part of a form."""
    for line in head.split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() != "content-disposition":
            continue
        found = _parsed(value.strip(), "content-disposition")
        name = found.get_param("name", header="content-disposition")
        is_file = found.get_param("filename", header="content-disposition") is not None
        return name if isinstance(name, str) and not is_file else None
    return None


def _parsed(value: str, header: str) -> Message:
    message = Message()
    message[header] = value[:MAX_HEAD_BYTES].replace("\r", " ").replace("\n", " ")
    return message
