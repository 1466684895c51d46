"""A step's output, and the services that its run starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from console.common.clock import SystemClock
from console.config.playbook.steps import Step
from console.host import cgroup, process
from console.host.process import ProcessSpec
from console.runner import context
from console.runner.context import Attempt
from console.runner.executors import command
from console.runner.executors.benchmark import public
from console.runner.services import RunServices
from tests.runner.unit.conftest import Bench
from tests.runtime.test_enclosure import ESCAPE
from tests.waiting import until


@pytest.mark.parametrize(("length", "count", "kept"), [(10, 30_000, 20_000), (100_000, 200, 83)])
def test_the_last_lines_are_kept_up_to_a_number_and_a_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, length: int, count: int, kept: int
) -> None:
    attempt = Attempt(bench.context, "up", 1, 60.0)
    attempt.path.parent.mkdir(parents=True)
    monkeypatch.setattr(context, "LOG_LIMIT", 1)
    for number in range(count):
        attempt.sink(f"{number} ".encode().ljust(length, b"x") + b"\n")
    attempt.close()
    assert len(attempt.output()) == kept
    assert len("".join(attempt.output())) <= context.KEPT
    assert attempt.output()[-1].startswith(f"{number} ")
    assert len(attempt.last_lines(2)) == 2


def test_a_command_in_a_container_says_what_its_engine_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_oneoff(*_: object, say: Callable[[str], None], **__: object) -> int:
        say("omni-up was killed: out of memory")
        return 137

    monkeypatch.setattr("console.runtime.docker.exec.run_oneoff", run_oneoff)
    bench.context.services = SimpleNamespace(client=None)  # type: ignore[assignment]
    attempt, said = Attempt(bench.context, "up", 1, 60.0), list[tuple[str, bool]]()
    monkeypatch.setattr(attempt, "say", lambda text, always=False: said.append((text, always)))
    step = Step.model_validate({"id": "up", "run": ["x"], "where": {"image": "i"}})
    assert command._in_container(bench.context, step, {}, attempt) == 137
    assert said == [("omni-up was killed: out of memory", True)]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a control group")
def test_who_left_the_session_ends_with_a_service_of_another_login(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    with closing(RunServices(bench.context)) as services:
        runs = ProcessSpec((sys.executable, "-S", "-c", ESCAPE))
        services.use(replace(services.specs["cand"], runs=runs))
        bench.context.services = services
        handle = services.start("cand", Attempt(bench.context, "up", 1, 60.0))
        group = cgroup.of_process(handle.pid, handle.start)

        def away() -> set[int]:
            near = process.members(handle.pid, handle.start)
            return set(cgroup.pids(group)) - {one.pid for one in near}

        try:
            until(away, "one of them is away")
        finally:
            # a `resume` from a second login: its own group is another one
            monkeypatch.setattr(cgroup, "_home", lambda: "/sys/fs/cgroup/elsewhere")
            assert services.stop("cand")
        until(lambda: not cgroup.pids(group), "nobody is left")


def test_secrets_are_left_out() -> None:
    for argv, kept in (
        (["llama-server", "-m", "x.gguf"], ["llama-server", "-m", "x.gguf"]),
        (["s", "--api-key", "hunter2", "-c", "8192"], ["s", "--api-key", "*****", "-c", "8192"]),
        (["s", "--api-key=hunter2", "x"], ["s", "--api-key=*****", "x"]),
        (["s", "--hf-token", "hf_x", "--k"], ["s", "--hf-token", "*****", "--k"]),
        (["s", "-hft", "hf_x"], ["s", "-hft", "*****"]),
        (["s", "--max-tokens", "9", "--cache-type-k", "q8_0"],
         ["s", "--max-tokens", "9", "--cache-type-k", "q8_0"]),
        (["s", "a\x1b[2Jb"], ["s", "ab"]),
    ):  # fmt: skip
        assert public(argv) == kept
