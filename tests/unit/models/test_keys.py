"""Making keys, and what the mirror has to write."""

import hashlib

import msgspec
import pytest

from schemas import codec
from schemas.keys import ADMIN, KeyLimits, KeyRecord
from services.cli.errors import UsageError
from services.cli.keys import options, shown
from services.models.errors import BadKey
from services.models.keys.minting import mint
from services.models.keys.mirror import changes

NOW_MS = 1_800_000_000_000
WANTED = KeyRecord(id="", digest="", name="app")


def a_key(n: int, **changes: object) -> KeyRecord:
    record = KeyRecord(id=f"key_{n}", digest=f"{n:064x}", name="app")
    return msgspec.structs.replace(record, **changes)


def mirrored(*records: KeyRecord) -> dict[str, bytes]:
    return {record.digest: codec.encode(record) for record in records}


def test_a_key_is_long_random_and_kept_as_its_digest() -> None:
    made = [mint(WANTED, NOW_MS) for _ in range(100)]
    assert len({new.secret for new in made}) == len({new.record.id for new in made}) == 100
    new = made[0]
    assert new.secret.startswith("sk-")
    assert len(new.secret) >= 46
    assert new.record.digest == hashlib.sha256(new.secret.encode()).hexdigest()
    assert new.record.created_at_ms == NOW_MS
    assert new.secret.encode() not in codec.encode(new.record)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"scopes": ()},
        {"scopes": ("everything",)},
        {"content": "some"},
        {"expires_at_ms": NOW_MS},
        {"limits": KeyLimits(requests_per_minute=-1)},
        {"limits": KeyLimits(tokens_per_minute=10**9 + 1)},
        {"limits": KeyLimits(concurrent=1001)},
    ],
)
def test_what_no_key_can_be_like_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadKey):
        mint(msgspec.structs.replace(WANTED, **wrong), NOW_MS)


def test_only_what_is_new_is_written() -> None:
    old, changed, new = a_key(1), a_key(2), a_key(3)
    revoked = msgspec.structs.replace(changed, revoked_at_ms=5)
    found = changes([old, revoked, new], mirrored(old, changed), NOW_MS)
    assert found == mirrored(revoked, new)


def test_what_the_table_does_not_know_is_revoked_and_never_removed() -> None:
    stray = a_key(1)
    found = changes([], mirrored(stray), NOW_MS)
    assert codec.decode(found[stray.digest], KeyRecord).revoked_at_ms == NOW_MS
    assert changes([], found, NOW_MS + 1) == {}


def test_an_unreadable_entry_is_written_anew() -> None:
    known, digest = a_key(1), "f" * 64
    found = changes([known], {known.digest: b"\xc1", digest: b"\xc1"}, NOW_MS)
    assert found[known.digest] == codec.encode(known)
    assert codec.decode(found[digest], KeyRecord).revoked_at_ms == NOW_MS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW_MS + 90_000),
        ("15m", NOW_MS + 900_000),
        ("12h", NOW_MS + 43_200_000),
        ("30d", NOW_MS + 2_592_000_000),
        ("1w", NOW_MS + 604_800_000),
        ("2027-01-31", 1_801_353_600_000),
        ("2027-01-31T12:00:00+01:00", 1_801_393_200_000),
    ],
)
def test_when_a_key_expires(text: str, expected: int) -> None:
    assert options.expires_at_ms(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "soon", "30", "-1d", "30 d", "999999999w", "2027-13-01"])
def test_when_it_cannot(text: str) -> None:
    with pytest.raises(UsageError):
        options.expires_at_ms(text, NOW_MS)


def test_the_words_of_create() -> None:
    words = "create app --scope admin --model a --model b --requests-per-minute 5 --concurrent 2"
    given = options.parse([*words.split(), "--tokens-per-minute", "9", "--content", "none"])
    assert options.wanted(given, NOW_MS) == msgspec.structs.replace(
        WANTED,
        scopes=(ADMIN,),
        models=("a", "b"),
        limits=KeyLimits(requests_per_minute=5, tokens_per_minute=9, concurrent=2),
        content="none",
    )


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        (("--database-url", "u"), {"LLAMATAPE_DATABASE_URL": "v"}, "u"),
        (("--data-dir", "/d"), {"LLAMATAPE_DATABASE_URL": "v"}, "/d/llamatape.db"),
        ((), {"LLAMATAPE_DATABASE_URL": "v"}, "v"),
        ((), {"LLAMATAPE_DATA_DIR": "/e"}, "/e/llamatape.db"),
    ],
)
def test_which_database_is_meant(
    words: tuple[str, ...], environment: dict[str, str], expected: str
) -> None:
    given = options.parse(["list", *words])
    assert options.database_url(given, environment).endswith(expected)


def test_a_table_for_people() -> None:
    limited = a_key(1, limits=KeyLimits(requests_per_minute=5, concurrent=2), models=("m",))
    records = [limited, a_key(2, revoked_at_ms=NOW_MS), a_key(3, expires_at_ms=NOW_MS)]
    heading, first, second, third = shown.as_table(records, NOW_MS).splitlines()
    assert heading.startswith("ID")
    assert "5 requests/min, 2 at once" in first
    assert first.endswith("valid")
    assert "revoked 2027-01-15" in second
    assert "expired" in third
