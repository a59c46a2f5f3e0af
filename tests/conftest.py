"""What all tests share: a marker by folder, and no quiet skips in CI."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KINDS = ("unit", "contract", "integration", "e2e")


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
