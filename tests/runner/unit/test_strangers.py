"""Whom a run's services never end, whatever stands in their handles: each step that stops or
replaces something (tune, bisect, a cutover's relay, `service`) goes through them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from console.common import paths
from console.common.clock import SystemClock
from console.host import process
from console.host.licence import Refused
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.runner.services import RunServices
from console.runtime.spec import Handle
from tests.children import SLEEP
from tests.runner.unit.conftest import Bench

SLEEPS = ProcessSpec(SLEEP)


@pytest.fixture
def services(bench: Bench, tmp_path: Path) -> Iterator[RunServices]:
    bench.context.clock = SystemClock()
    with closing(RunServices(bench.context)) as made:
        bench.context.services = made
        yield made


@pytest.fixture
def stranger(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """A process that this run has not started."""
    cookie = getattr(request, "param", "theirs")
    found = process.spawn(SLEEPS, log=tmp_path / "log", cookie=cookie)
    yield found
    process.stop_group(*found, grace_s=0.0)


def hold(services: RunServices, name: str, who: tuple[int, int]) -> None:
    services.handles[name] = Handle(name, "process", name=name, pid=who[0], start=who[1])


def test_the_adopted_baseline_of_another_site_is_refused(
    services: RunServices, stranger: tuple[int, int]
) -> None:
    process.write_record(paths.records_dir("other"), "baseline", SLEEPS, *stranger)
    hold(services, "cand", stranger)
    with pytest.raises(Refused, match="recorded baseline of site other"):
        services.stop("cand")
    assert process.alive(*stranger)


@pytest.mark.parametrize("stranger", [BASELINE_COOKIE], indirect=True)
def test_what_the_console_started_as_a_baseline_is_refused(
    services: RunServices, stranger: tuple[int, int]
) -> None:
    """Its record is lost; its mark is not."""
    hold(services, "cand", stranger)
    with pytest.raises(Refused, match="started it as a baseline"):
        services.stop("cand")
    assert process.alive(*stranger)


def test_a_pid_that_is_used_again_is_nobodys_service(
    services: RunServices, stranger: tuple[int, int]
) -> None:
    hold(services, "cand", (stranger[0], stranger[1] - 1))
    assert not services.stop("cand")
    assert process.alive(*stranger)
    assert "cand" not in services.handles
