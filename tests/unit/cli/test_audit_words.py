"""What `llamatape audit` takes and shows."""

import pytest

from services.cli.audit import columns, options
from services.cli.broker import BrokerPlan, address_of
from services.cli.errors import UsageError
from services.cli.parse import parse
from services.cli.settings import admin_keys, archive_settings, gateway_settings


def test_the_database_that_is_meant() -> None:
    env = {"LLAMATAPE_DATA_DIR": "/srv/a", "LLAMATAPE_DATABASE_URL": "postgresql+asyncpg://h/d"}
    sqlite = "sqlite+aiosqlite:////srv/{}/llamatape.db"
    for line, environment, url in (
        ("list", env, env["LLAMATAPE_DATABASE_URL"]),
        ("list", {"LLAMATAPE_DATA_DIR": "/srv/a"}, sqlite.format("a")),
        ("list --data-dir /srv/b", env, sqlite.format("b")),
        ("list --data-dir /srv/b --database-url x:///y", env, "x:///y"),
    ):
        assert options.database_url(options.parse(line.split(), environment)) == url


def test_filters_have_the_names_of_the_api() -> None:
    line = "export --caller k --from 2026-01-01 --to 2026-01-31 --id 01 --outcome failed"
    found = options.filters(options.parse(line.split(), {}))
    assert found == {
        "caller": "k",
        "from": "2026-01-01",
        "to": "2026-01-31",
        "id": "01",
        "outcome": "failed",
    }


@pytest.mark.parametrize(
    "line",
    ["", "x", "list --x", "show", "erase", "erase --id a --caller b", "replay a --as klingon"],
)
def test_what_is_wrong_is_one_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"^llamatape audit"):
        options.parse(line.split(), {})


def test_nothing_of_a_client_moves_the_cursor() -> None:
    assert columns.text("a\x1b[2Jb\nc") == "a?[2Jb?c"
    [head, line] = columns.listing([{"created_at_ms": 0, "caller": "\x1b" * 90, "model": ""}])
    assert "1970-01-01 00:00:00" in line
    assert "\x1b" not in line
    assert len(line) < 200
    assert head.startswith("CREATED (UTC)")


def test_keys_of_operators() -> None:
    values = parse(["-m", "x", "--admin-api-key", "a,b"], {"LLAMATAPE_RECORD_CONTENT": "hashes"})
    assert admin_keys(values) == ("a", "b")
    assert gateway_settings(values).record_content == "hashes"
    assert gateway_settings(values).admin_api_keys == ("a", "b")


@pytest.mark.parametrize(("flags", "line"), [([], '"10s"'), (["--durable"], "always")])
def test_durable(tmp_path_factory: pytest.TempPathFactory, flags: list[str], line: str) -> None:
    values = parse(["-m", "x", *flags], {})
    folder = tmp_path_factory.mktemp("broker")
    is_durable = bool(values["durable"])
    plan = BrokerPlan(folder=folder, token="t", binary=folder / "n", is_durable=is_durable)
    assert f"sync_interval: {line}\n" in plan.write_config(4222).read_text()
    assert archive_settings(values, is_embedded=True).is_durable == is_durable
    assert address_of(folder) == ("nats://127.0.0.1:4222", "t")
    assert address_of(folder / "none") is None
