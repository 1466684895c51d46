"""Pytest plugin, copied into the tree under test: it measures each test, or runs chosen tests.

It stands alone, because the tree may be an older one that knows nothing of mutants.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

PLACE = os.environ.get("MUTANTS_PLACE", "")
"""A folder: `chosen` has the tests to run, one a line; `events` gets what happened."""
MEASURE = os.environ.get("MUTANTS_MEASURE", "")
"""A folder that gets tests.tsv: the name of each test that passed, its tier, its seconds."""
SECONDS = float(os.environ.get("MUTANTS_SECONDS", "0"))
_begun = time.monotonic()
_took: dict[str, float] = {}
_bad: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """Child processes measure too, and know from PYTEST_CURRENT_TEST for which test.

    Not told to the process that starts workers: they measure by pytest-cov.
    """
    if MEASURE and not getattr(config.option, "numprocesses", None):
        os.environ["COVERAGE_PROCESS_START"] = f"{MEASURE}/rc"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not PLACE:
        return
    names = (Path(PLACE) / "chosen").read_text("utf-8").splitlines()
    order = {name: number for number, name in enumerate(names)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
    items[:] = sorted(
        (item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid]
    )


def _event(word: str, name: str) -> None:
    with (Path(PLACE) / "events").open("a", encoding="utf-8") as file:
        file.write(f"{word} {name}\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    if PLACE:
        _event("began", nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    done = yield
    if PLACE and SECONDS and time.monotonic() - _begun > SECONDS:
        item.session.shouldstop = "the time for this mutant is used up"
    return done


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if PLACE and report.failed:
        _event("failed", report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if PLACE and report.failed:
        _event("failed", report.nodeid)
    if MEASURE and "PYTEST_XDIST_WORKER" not in os.environ:
        _measured(report)


def _measured(report: pytest.TestReport) -> None:
    name = report.nodeid
    _took[name] = _took.get(name, 0.0) + report.duration
    if not report.passed:
        _bad.add(name)
    if report.when == "teardown" and name not in _bad:
        tier = "full" if "full" in report.keywords else "test"
        engine = "engine" if "engine" in report.keywords else ""
        with Path(MEASURE, "tests.tsv").open("a", encoding="utf-8") as file:
            file.write(f"{name}\t{tier}\t{engine}\t{_took[name]:.3f}\n")
