"""What all tests share: a marker by folder, and no quiet skips in CI."""

import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.topology import ensure_topology
from services.cli.broker import Broker, start_broker

# A busy machine is no error: time limits are pytest-timeout's.
settings.register_profile("llamatape", deadline=None)
settings.load_profile("llamatape")

HERE = Path(__file__).parent
KINDS = ("unit", "contract", "integration", "containers", "e2e", "faults")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with the folder that it lies in: `-m unit`, `-m 'not e2e'`."""
    for item in items:
        kind = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if kind in KINDS:
            item.add_marker(kind)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A missing service may skip a test on a laptop; with CI set that is a failure (but for `may_skip`)."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and os.environ.get("CI") and item.get_closest_marker("may_skip") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real nats-server with JetStream for one test module."""
    broker = start_broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()


@pytest.fixture
def bus_settings(nats_server: Broker) -> BusSettings:
    """How to reach it, with a short lease."""
    return BusSettings(url=nats_server.url, token=nats_server.token, lease_s=1.0)


@pytest.fixture
async def bus(bus_settings: BusSettings) -> AsyncIterator[Bus]:
    """A connection with all streams and buckets in place."""
    connection = await connect(bus_settings, name="test")
    await ensure_topology(connection)
    yield connection
    await connection.close()
