"""Which generations somebody asks for, and where the next page begins. Pure.

Pages are cut by (created_at_ms, generation_id), newest first: rows that are added meanwhile move none
of the others, so a walk through the pages shows each row that was there once.
"""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from schemas.errors import RequestError

OUTCOMES = ("finished", "failed", "cancelled")
DEFAULT_LIMIT, MAX_LIMIT = 50, 1000
_CURSOR = re.compile(r"([0-9]{1,15})\.([0-9a-f-]{36})", re.ASCII)
_PREFIX = re.compile(r"[0-9a-f-]{1,36}", re.ASCII)
_MILLISECONDS = re.compile(r"[0-9]{1,15}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_LIMIT = re.compile(r"[0-9]{1,6}", re.ASCII)


class Cursor(NamedTuple):
    """The last row that was seen."""

    created_at_ms: int
    generation_id: str

    def __str__(self) -> str:
        return f"{self.created_at_ms}.{self.generation_id}"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What rows must have; empty texts and None let everything through.

    caller: key id. id_prefix: how the generation id begins. from_ms, to_ms: Unix milliseconds of
    `created_at_ms`, the first inclusive, the second not.
    """

    caller: str = ""
    model: str = ""
    outcome: str = ""
    dialect: str = ""
    id_prefix: str = ""
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class PageQuery:
    """One page. limit: rows at most. after: begin behind that row, None for the newest."""

    wanted: Filter = Filter()
    limit: int = DEFAULT_LIMIT
    after: Cursor | None = None


def parse_query(query: Mapping[str, str]) -> PageQuery:
    """The page that a query string, or flags of the same names, ask for. Raises RequestError."""
    after = query.get("after", "")
    return PageQuery(
        wanted=parse_filter(query),
        limit=_limit(query.get("limit", "")),
        after=parse_cursor(after) if after else None,
    )


def parse_filter(query: Mapping[str, str]) -> Filter:
    """Raises RequestError."""
    outcome, prefix = query.get("outcome", ""), query.get("id", "").lower()
    if outcome and outcome not in OUTCOMES:
        raise RequestError.invalid(f"'outcome' must be one of {', '.join(OUTCOMES)}", "outcome")
    if prefix and _PREFIX.fullmatch(prefix) is None:
        raise RequestError.invalid("'id' must be how a generation id begins", "id")
    return Filter(
        caller=_text(query, "caller"),
        model=_text(query, "model"),
        outcome=outcome,
        dialect=_text(query, "dialect"),
        id_prefix=prefix,
        from_ms=_moment(query, "from"),
        to_ms=_moment(query, "to", is_end=True),
    )


def parse_cursor(text: str) -> Cursor:
    """Raises RequestError."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise RequestError.invalid("'after' must be the 'next' of another page", "after")
    return Cursor(int(found[1]), found[2])


def parse_day(text: str, name: str) -> datetime.date:
    """A day as YYYY-MM-DD. Raises RequestError."""
    try:
        if _DATE.fullmatch(text):
            return datetime.date.fromisoformat(text)
    except ValueError:
        pass
    raise RequestError.invalid(f"'{name}' must be a day, as 2026-01-31", name)


def parse_moment(text: str, name: str, *, is_end: bool = False) -> int:
    """Unix milliseconds of `text`: that number itself, or an ISO 8601 time (UTC where it says no zone).

    A day alone stands for its beginning; as an end (`is_end`), for all of it. Raises RequestError.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        if is_end and _DATE.fullmatch(text):
            moment += datetime.timedelta(days=1)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        message = f"'{name}' must be an ISO 8601 time or Unix milliseconds"
        raise RequestError.invalid(message, name) from None


def _moment(query: Mapping[str, str], name: str, *, is_end: bool = False) -> int | None:
    text = query.get(name, "")
    return parse_moment(text, name, is_end=is_end) if text else None


def _text(query: Mapping[str, str], name: str) -> str:
    """PostgreSQL's texts hold no zero byte, and no encoding holds half a surrogate pair."""
    text = query.get(name, "")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError.invalid(f"'{name}' is not valid text", name) from None
    if "\0" in text:
        raise RequestError.invalid(f"'{name}' is not valid text", name)
    return text


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if _LIMIT.fullmatch(text) is None or not 1 <= int(text) <= MAX_LIMIT:
        raise RequestError.invalid(f"'limit' must be 1 to {MAX_LIMIT}", "limit")
    return int(text)
