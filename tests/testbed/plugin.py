"""Pytest plugin: fixtures for the real parts, and honest words where they are missing.

A test that needs an engine is skipped where there is none, and the summary names it; with
OMNI_REQUIRE_ENGINE=1 it fails instead, so that a pipeline cannot pass by skipping.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from tests.testbed import image, instruct, kinds, nvml
from tests.testbed.cache import Shared, Unavailable
from tests.testbed.engine import SESSIONS, Engine, clean, ensure_engine
from tests.waiting import busiest

T = TypeVar("T")
REQUIRED = os.environ.get("OMNI_REQUIRE_ENGINE") == "1"
MARK = "engine"
PREFIX = "no real part: "
FIXTURES = {"engine", "docker_env", "llama_image", "extra_image", "busy_image"}
ALONE = "alone"
"""Tests that hold a terminal run one at a time, on one worker, beside the rest; so do tests that
use a container engine, on a worker of their own."""
FULL = "full"
"""Tests that only `make test-all` runs."""


class _Session:
    """What one test session knows about the engine; asked once, because asking takes seconds."""

    def __init__(self) -> None:
        self.ready: Engine | None = None
        self.reason = ""
        self.share: Shared | None = None

    def get(self) -> Engine:
        if self.reason:
            raise Unavailable(self.reason)
        if self.ready is None:
            try:
                self.share = self.share or Shared(SESSIONS)
                self.ready = ensure_engine()
            except Unavailable as error:
                self.reason = error.reason
                raise
        return self.ready

    def end(self) -> None:
        """Clean the engine up, unless another session still has containers there."""
        if self.share is None:
            return
        try:
            if self.ready is not None and self.share.alone():
                clean(self.ready)
        finally:
            self.share.close()
            self.share = None


_KEY: pytest.StashKey[_Session] = pytest.StashKey()


def need(make: Callable[[], T]) -> T:
    """What ``make`` gives, or a skip (a failure under OMNI_REQUIRE_ENGINE=1) with the reason."""
    try:
        return make()
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def lacking(reason: str) -> NoReturn:
    """This machine lacks what a test needs: a skip, or a failure under OMNI_REQUIRE_ENGINE=1."""
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = _Session()
    config.addinivalue_line("markers", f"{MARK}: needs a real Docker engine with Compose v2")
    config.addinivalue_line("markers", f"{ALONE}: holds a terminal or an engine; one at a time")
    config.addinivalue_line("markers", f"{FULL}: only `make test-all` runs it")
    config.addinivalue_line("markers", "xdist_group: pytest-xdist's own, known without it too")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses an engine fixture, so that ``-m 'not engine'`` leaves out every such test,
    and put what has to be alone on one worker."""
    for item in items:
        # a parameter may have the name of a fixture, and needs no engine for that
        given = getattr(getattr(item, "callspec", None), "params", {})
        if FIXTURES & set(getattr(item, "fixturenames", ())) - set(given):
            item.add_marker(MARK)
            item.add_marker(ALONE)
        if item.get_closest_marker(ALONE):
            item.add_marker(pytest.mark.xdist_group(_lane(item)))


def _lane(item: pytest.Item) -> str:
    """Which worker runs what has to be alone: one holds the terminals, and two the engine, as whole
    runs mostly wait. Tests with engines of other kinds are together, for each is started once."""
    if not item.get_closest_marker(MARK):
        return ALONE
    params = getattr(getattr(item, "callspec", None), "params", {})
    of_runs = "e2e" in item.path.parts and "kind" not in params
    return f"{MARK} of runs" if of_runs else MARK


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARK):
        need(item.config.stash[_KEY].get)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure says where the run of its world stood, whatever it was that ran out. Where nothing
    may be lacking, a skip for want of root or of a program is a failure too."""
    report = yield
    if report.skipped and REQUIRED and "needs " in str(report.longrepr):
        report.outcome, report.longrepr = "failed", f"{report.longrepr}"
    if report.when == "call" and report.failed:
        for made in getattr(item, "funcargs", {}).values():
            if callable(where := getattr(getattr(made, "world", made), "where", None)):
                report.sections.append(("where the run stood", told(where)))
                break
    return report


def told(where: Callable[[], str]) -> str:
    try:
        return "\n".join([where(), "busiest processes:", *busiest()])
    except Exception as error:  # the report of a failure must not hide the failure
        return f"cannot be told: {error!r}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_KEY].end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List by name what did not run and why: a skipped engine test proves nothing."""
    missed: dict[str, list[str]] = {}
    for report in terminalreporter.getreports("skipped"):
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, found, reason = words.partition(PREFIX)
        if found:
            missed.setdefault(reason, []).append(report.nodeid)
    for reason, names in missed.items():
        terminalreporter.section("tests that did not run for want of a real part", yellow=True)
        terminalreporter.line(f"why: {reason}")
        for name in names:
            terminalreporter.line(f"  {name}")


on_every_engine = pytest.mark.parametrize(
    "kind",
    [kinds.USUAL, *(pytest.param(kind, marks=pytest.mark.full) for kind in kinds.OTHERS)],
    indirect=True, scope="session",
)  # fmt: skip
"""A test that has to hold with engines of other makes and ages as well, in `make test-all`."""


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", kinds.USUAL))


@pytest.fixture(scope="session")
def engine(pytestconfig: pytest.Config, kind: str) -> Iterator[Engine]:
    if kind == kinds.USUAL:
        yield need(pytestconfig.stash[_KEY].get)
        return
    with ExitStack() as stack:
        yield need(lambda: stack.enter_context(kinds.engine_of(kind)))


@pytest.fixture(scope="session")
def docker_env(engine: Engine) -> dict[str, str]:
    return engine.env()


@pytest.fixture(scope="session")
def busy_image(engine: Engine) -> str:
    return need(lambda: image.ensure_busy_image(engine))


@pytest.fixture(scope="session")
def llama_image(engine: Engine) -> str:
    return need(lambda: image.ensure_llama_image(engine))


@pytest.fixture(scope="session")
def extra_image(engine: Engine) -> str:
    return need(lambda: image.ensure_extra_image(engine))


@pytest.fixture(name="nvml", scope="session")
def nvml_library() -> nvml.Nvml:
    """A scripted NVML library for the real pynvml; needs no engine."""
    return need(nvml.ensure_nvml)


@pytest.fixture(scope="session")
def instruct_model() -> Path:
    """The file of a real instruct model, which tests.testbed.instruct serves; needs no engine."""
    return need(instruct.ensure_model)
