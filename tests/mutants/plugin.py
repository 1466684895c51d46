"""Pytest plugin that measures each test, or runs chosen tests in their order. It is copied into
the tree under test and stands alone, because that may be an older one without this package."""

import math
import os
import re
from pathlib import Path

import pytest

PLACE = os.environ.get("MUTANTS_PLACE", "")
"""A folder: `chosen` has the tests to run, one a line; `events` gets what happened."""
MEASURE = os.environ.get("MUTANTS_MEASURE", "")
"""A folder that gets tests.tsv: the name of each test that passed, its tier, its seconds."""
WORKER = "PYTEST_XDIST_WORKER" in os.environ
_took: dict[str, float] = {}


def pytest_configure() -> None:
    if MEASURE and WORKER:  # what it starts measures too; PYTEST_CURRENT_TEST says for which test
        os.environ["COVERAGE_PROCESS_START"] = f"{MEASURE}/rc"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PLACE:
        found = {item.nodeid: item for item in items}
        chosen = (Path(PLACE) / "chosen").read_text("utf-8").splitlines()
        items[:] = [found[name] for name in chosen if name in found]


def _event(word: str, name: str) -> None:
    if PLACE:
        with (Path(PLACE) / "events").open("a", encoding="utf-8") as file:
            file.write(f"{word} {name}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _event("began", nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _event("failed", report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """pytest-xdist adds a test's group to its name; a run without workers knows it without."""
    name = re.sub(r"@[\w-]+$", "", report.nodeid)
    if report.failed:
        _event("failed", name)
    if MEASURE and not WORKER:
        _took[name] = _took.get(name, 0.0) + (report.duration if report.passed else math.inf)
        if report.when == "teardown" and _took[name] < math.inf:
            tier = "full" if "full" in report.keywords else "test"
            engine = "engine" if "engine" in report.keywords else ""
            with Path(MEASURE, "tests.tsv").open("a", encoding="utf-8") as file:
                file.write(f"{name}\t{tier}\t{engine}\t{_took[name]:.3f}\n")
