"""Carries `llamatape audit` out, on the database itself."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from services.cli.audit import columns, options
from services.cli.audit.opening import opened, opened_with_broker
from services.streams.audit import lines
from services.streams.audit.filters import MAX_LIMIT, PageQuery, parse_cursor, parse_filter
from services.streams.audit.routes import parse_extent, parse_id
from services.streams.audit.service import Audit
from services.streams.audit.verification import Columns, Finding
from services.streams.audit.verifier import Verdict

FOUND = 2
"""Exit code of `verify` when something is wrong; 1 is for what could not be done."""
NO_BROKER = (
    "The broker is not there: what it still has of this is removed by the server, within a minute "
    "of its next start at the latest (--archive-sweep)"
)


def run(words: Sequence[str]) -> int:
    """The exit code. Raises LlamatapeError."""
    given = options.parse(words)
    commands: dict[str, Callable[[argparse.Namespace], Awaitable[int]]] = {
        "list": _list,
        "show": _show,
        "replay": _replay,
        "export": _export,
        "verify": _verify,
        "erase": _erase,
    }
    try:
        code = asyncio.run(_code(commands[given.command](given)))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
        return 0
    return code


async def _code(work: Awaitable[int]) -> int:
    return await work


async def pages(audit: Audit, given: argparse.Namespace, limit: int) -> AsyncGenerator[Columns]:
    """Facts of what the filters let through, newest first, up to `limit` (0: all)."""
    wanted, after = parse_filter(options.filters(given)), getattr(given, "after", "")
    cursor, n_left = parse_cursor(after) if after else None, limit or sys.maxsize
    while True:
        size = min(MAX_LIMIT, n_left)
        page = await audit.page(PageQuery(wanted=wanted, limit=size, after=cursor))
        for facts in page.rows:
            yield facts
        n_left, cursor = n_left - len(page.rows), page.next
        if cursor is None or n_left <= 0:
            break
    if cursor is not None:
        print(f"There are more: --after {cursor}", file=sys.stderr)


async def _list(given: argparse.Namespace) -> int:
    async with opened(given) as audit:
        found = pages(audit, given, max(given.limit, 0))
        if given.json:
            async for facts in found:
                _write(lines.line(lines.listed(facts)))
        else:
            print("\n".join(columns.listing([facts async for facts in found])))
    return 0


async def _show(given: argparse.Namespace) -> int:
    generation_id = parse_id(given.id)
    async with opened(given) as audit:
        if given.events:
            for each in lines.event_lines(await audit.entries(generation_id)):
                _write(each)
            return 0
        facts = await audit.facts(generation_id)
    if given.json:
        _write(lines.line(lines.shown(facts)))
    else:
        print("\n".join(columns.details(facts)))
    return 0


async def _replay(given: argparse.Namespace) -> int:
    from services.cli.audit.replay import type_out
    from services.streams.audit.rendering import rendered

    generation_id = parse_id(given.id)
    async with opened(given) as audit:
        entries = await audit.entries(generation_id)
    if given.dialect:
        _write(rendered(generation_id, entries, given.dialect))
    else:
        type_out(entries, speed=given.speed, choice=given.choice)
    return 0


async def _export(given: argparse.Namespace) -> int:
    from services.cli.audit import export

    async with opened(given) as audit:
        n = await export.write(audit, pages(audit, given, 0), given)
    print(f"{n} generations", file=sys.stderr)
    return 0


async def _verify(given: argparse.Namespace) -> int:
    wanted: dict[str, object] = {
        "id": given.id,
        "from": given.first_day,
        "to": given.last_day,
        "expect_head": given.expect_head,
    }
    verdict = None
    async with opened(given) as audit:
        async for step in audit.verify(parse_extent(wanted)):
            if given.json:
                _write(lines.step_line(step))
            elif isinstance(step, Finding):
                print("\n".join(_finding(step)), flush=True)
            verdict = step
    assert isinstance(verdict, Verdict)
    if not given.json:
        print("\n".join(_verdict(verdict)))
    return 0 if verdict.is_intact else FOUND


def _finding(finding: Finding) -> list[str]:
    where = f"{finding.day}/{finding.position}" if finding.day else "no link"
    what = f"{finding.kind}: {finding.generation_id or '-'} ({where}): {finding.detail}"
    return [columns.text(what)]


def _verdict(verdict: Verdict) -> list[str]:
    word = "intact" if verdict.is_intact else f"NOT intact: {verdict.n_findings} findings"
    head = "none" if verdict.head is None else str(verdict.head)
    return [f"{verdict.n_links} links, {word}", f"head {head}"]


async def _erase(given: argparse.Namespace) -> int:
    async with opened_with_broker(given) as (audit, has_broker):
        if given.caller:
            n_erased = await audit.erase_caller(given.caller)
            print(f"{n_erased} generations of {columns.text(given.caller)} are erased")
        else:
            facts = await audit.erase(parse_id(given.id))
            print(f"{facts['generation_id']} is erased")
    if not has_broker:
        print(NO_BROKER, file=sys.stderr)
    return 0


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
