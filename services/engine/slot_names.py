"""Names of saved slots: one file in one folder, whatever a client writes. Pure.

llama-server's rules, which hold on every file system: no separators, no control characters, none that
Windows forbids or that look like a dot or a slash, nothing that is stripped, no two dots.
"""

from schemas.errors import RequestError

MAX_BYTES = 255
FORBIDDEN = frozenset(':*?"<>|/\\\uff0e\u2215\u2216\ufffd\ufeff')
CONTROL = (range(0x20), range(0x7F, 0xA0), range(0xD800, 0xE000))


def check_name(name: str) -> str:
    """The name itself. Raises RequestError."""
    if not is_file_name(name):
        raise RequestError.invalid("Invalid filename", "filename")
    return name


def is_file_name(name: str) -> bool:
    n_bytes = len(name.encode("utf-8", "surrogatepass"))
    return (
        0 < n_bytes <= MAX_BYTES
        and not any(_is_forbidden(char) for char in name)
        and name.strip(" ") == name
        and not name.endswith(".")
        and ".." not in name
    )


def _is_forbidden(char: str) -> bool:
    return char in FORBIDDEN or any(ord(char) in span for span in CONTROL)
