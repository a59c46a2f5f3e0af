"""Forms as JSON objects."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import RequestError
from services.edge.form import MAX_FIELDS, form_fields, is_form

TYPE = "multipart/form-data; boundary=xyz"


def encoded(fields: list[tuple[str, str]], **files: tuple[str, bytes]) -> tuple[bytes, str]:
    """As a client encodes them."""
    parts = [(name, (None, text)) for name, text in fields]
    request = httpx.Request("POST", "http://a", files=[*parts, *files.items()])  # type: ignore[arg-type]
    return request.read(), request.headers["content-type"]


def test_fields_are_strings_and_repeated_ones_lists() -> None:
    body, kind = encoded([("prompt", "Once é\r\nupon"), ("stop", "a"), ("stop", "b"), ("n", "5")])
    assert is_form(kind)
    assert form_fields(body, kind) == {"prompt": "Once é\r\nupon", "stop": ["a", "b"], "n": "5"}


def test_files_are_left_out() -> None:
    body, kind = encoded([("model", "m")], file=("sound.wav", b"RIFF\xff"))
    assert form_fields(body, kind) == {"model": "m"}


TEXTS = st.text(st.characters(codec="utf-8"))


@given(st.dictionaries(st.text("abcdef", min_size=1), TEXTS, min_size=1))
def test_any_text_comes_through(fields: dict[str, str]) -> None:
    assert form_fields(*encoded(list(fields.items()))) == fields


def test_other_types_are_no_forms() -> None:
    for kind in ("", "application/json", "application/x-www-form-urlencoded", "multipart/mixed"):
        assert not is_form(kind)
    assert is_form("Multipart/Form-Data; boundary=x")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data"),
        (b"", TYPE),
        (b'--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\nunfinished', TYPE),
        (b"--xyz\r\n\r\n" * (MAX_FIELDS + 5) + b"--xyz--", TYPE),
    ],
)
def test_what_is_no_whole_form(body: bytes, kind: str) -> None:
    with pytest.raises(RequestError):
        form_fields(body, kind)


@given(st.binary(max_size=200))
def test_nothing_else_is_raised(noise: bytes) -> None:
    try:
        form_fields(b"--xyz\r\n" + noise + b"\r\n--xyz--", TYPE)
    except RequestError:
        pass
