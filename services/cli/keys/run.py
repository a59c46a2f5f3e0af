"""Carries `llamatape keys` out, on the database itself."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from services.cli.keys import options, shown
from services.models.keys.minting import mint
from services.models.keys.store import KeyStore, open_keys


def run(words: Sequence[str]) -> int:
    """The exit code. Raises LlamatapeError."""
    given = options.parse(words)
    asyncio.run(_run(given))
    return 0


async def _run(given: argparse.Namespace) -> None:
    commands = {"create": _create, "list": _list, "revoke": _revoke}
    store = await open_keys(options.database_url(given))
    try:
        await commands[given.command](store, given)
    finally:
        await store.close()


async def _create(store: KeyStore, given: argparse.Namespace) -> None:
    """The key alone goes to stdout, so that `KEY=$(llamatape keys create app)` works."""
    made = mint(options.wanted(given, _now_ms()), _now_ms())
    await store.add(made.record)
    if given.json:
        print(shown.as_json(made.record, made.secret))
        return
    print(shown.as_table([made.record], _now_ms()), file=sys.stderr)
    print("This is the key; it is not shown again:", file=sys.stderr, flush=True)
    print(made.secret)


async def _list(store: KeyStore, given: argparse.Namespace) -> None:
    records = await store.all()
    if not given.json:
        print(shown.as_table(records, _now_ms()))
    for record in records if given.json else ():
        print(shown.as_json(record))


async def _revoke(store: KeyStore, given: argparse.Namespace) -> None:
    record = await store.revoke(given.key, _now_ms())
    print(shown.as_json(record) if given.json else f"{record.id} ({record.name}) is revoked")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
