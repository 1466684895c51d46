"""A step's output, and the services that its run starts: what answers at a service's address is the
service, or the step says who it is."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.common.progress import Figures
from console.config.playbook.steps import Step
from console.host import cgroup, ports, privileges, process
from console.host.process import ProcessSpec
from console.journal import events
from console.journal.state import StepState
from console.journal.store import read_events
from console.recovery.rollback import live
from console.runner import context
from console.runner.context import Attempt, StepFailed
from console.runner.executors import command
from console.runner.executors.benchmark import public
from console.runner.services import RunServices, record_daemon, refuse_stranger
from console.runtime.spec import ContainerSpec, Mount, changed_weights
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runner.unit.conftest import Bench
from tests.runtime.test_enclosure import ESCAPE
from tests.waiting import some, until


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


# -- who answers -------------------------------------------------------------------------------


SERVER = f"{sys.executable} -S {STANDIN}"
ASIDE = "setsid {} >/dev/null & sleep 600"
"""A start script whose server has a session of its own."""
SHARED = "exec {} --shared"


@pytest.mark.parametrize(
    ("script", "is_stranger"),
    [("exec {}", False), (ASIDE, False), ("sleep 600", True), (SHARED, True)],
)
def test_who_answers_is_the_service_or_named(bench: Bench, script: str, is_stranger: bool) -> None:
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    port = free_port()
    with closing(RunServices(bench.context)) as services:
        bench.context.services = services
        runs = ProcessSpec(("sh", "-c", script.format(f"{SERVER} {port}")))
        spec = replace(services.specs["cand"], runs=runs, url=f"http://127.0.0.1:{port}")
        services.use(spec)
        services.start("cand", Attempt(bench.context, "up", 1, 60.0))
        beside = [*SERVER.split(), str(port), *(["--shared"] if script is SHARED else [])]
        child = subprocess.Popen(beside) if is_stranger else None
        count = 2 if script is SHARED else 1
        try:
            until(lambda: len(ports.answering(spec.url)) == count, "whoever answers listens")
            if child is None:
                refuse_stranger(bench.context, "cand")
            else:
                with pytest.raises(StepFailed, match=f"pid {child.pid}, .* and not cand"):
                    refuse_stranger(bench.context, "cand")
        finally:
            services.stop("cand")
            if child is not None:
                child.kill()
                child.wait()


DAEMON = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
DAEMON += "os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {})"


def test_a_service_that_daemonises_is_recorded_and_a_stranger_is_not(bench: Bench) -> None:
    """A double fork, a session of its own and an empty environment: a rollback finds it by its
    record alone. The kernel has made it a child of the runner, which a stranger never is."""
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    port = free_port()
    assert privileges.take_orphans()
    try:
        with closing(RunServices(bench.context)) as services:
            bench.context.services = services
            runs = ProcessSpec((sys.executable, "-c", DAEMON, "-S", str(STANDIN), str(port)))
            spec = replace(services.specs["cand"], runs=runs, url=f"http://127.0.0.1:{port}")
            services.use(spec)
            services.start("cand", Attempt(bench.context, "up", 1, 60.0))
            until(lambda: ports.listener(spec.url), "it listens")
            pid = some(ports.listener(spec.url)).pid
            until(lambda: some(process.stat(pid)).parent == os.getpid(), "it is an orphan")
            record_daemon(bench.context, "cand")
            entries = {one.pid: one.kind for one in live.read(bench.context.run.live)}
            assert entries[pid] == "process"
            process.send(pid, some(process.start_time(pid)), 9)
            os.waitpid(pid, 0)
            privileges.take_orphans(False)
            with running(["setsid", "--fork", *SERVER.split(), str(port)], env={}):
                until(lambda: ports.listener(spec.url), "somebody else listens")
                other = some(ports.listener(spec.url)).pid
                record_daemon(bench.context, "cand")
                assert other not in {one.pid for one in live.read(bench.context.run.live)}
                process.send(other, some(process.start_time(other)), 9)
    finally:
        privileges.take_orphans(False)


@pytest.mark.parametrize(("shift", "name", "changed"), [
    (-100.0, "tiny.gguf", True), (-100.0, "", True), (-100.0, "tiny.log", False),
    (100.0, "tiny.gguf", False),
])  # fmt: skip
def test_what_was_started_with_another_model_is_not_taken_over(
    bench: Bench, shift: float, name: str, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service began before its model was written, or after; a directory may be named."""
    bench.context.clock = SystemClock()
    (bench.context.run.path / "logs").mkdir()
    model = bench.context.run.path / "model"
    model.mkdir()
    (model / (name or "one.safetensors")).touch()
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + shift)
    with closing(RunServices(bench.context)) as services:
        bench.context.services = services
        attempt = Attempt(bench.context, "up", 1, 60.0)
        runs = ProcessSpec(("sh", "-c", "exec sleep 600", f"--model={model / name}"))
        services.use(replace(services.specs["kept"], runs=runs))
        services.start("kept", attempt)
        try:
            assert services.take_over("kept", attempt) is not changed
            assert (services.find("kept") is None) is changed
        finally:
            services.stop("kept")


def test_a_model_is_found_through_the_mounts_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").touch()
    mount = Mount(str(tmp_path), "/models")
    runs = ContainerSpec("image", ("-m", "/models/one.gguf"), mounts=(mount,))
    assert changed_weights(runs, 0.0) == str(tmp_path / "one.gguf")
    assert not changed_weights(replace(runs, command=("-m", "/other/one.gguf")), 0.0)


OLD, BEGAN = 1.0e9, 1.5e9


@pytest.mark.parametrize(("named", "change", "changed"), [
    ("now.gguf", "now.gguf", True), ("link/v2.gguf", "link", True), ("v-00001-of-00002.gguf",
     "v-00002-of-00002.gguf", True), ("v2.gguf", "now.gguf", False), ("link", "slot.bin", False),
    ("v2.gguf", "", False),
])  # fmt: skip
def test_what_counts_as_a_change_of_the_model(
    tmp_path: Path, named: str, change: str, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to it, to its directory, a part of it; and no other file. The one time that nobody can
    set is scripted: all is old but what changed."""
    for name in ("v2.gguf", "v-00001-of-00002.gguf", "v-00002-of-00002.gguf", "slot.bin"):
        (tmp_path / name).touch()
    (tmp_path / "now.gguf").symlink_to("v2.gguf")
    (tmp_path / "link").symlink_to(".")
    stats = Path.lstat, Path.stat

    def seen(path: Path, real: Callable[..., os.stat_result], **how: bool) -> Any:
        found = real(path, **how)
        late = real is stats[0] and path == tmp_path / change
        late |= real is stats[1] and os.path.realpath(path) == str(tmp_path / change)
        return SimpleNamespace(st_mode=found.st_mode, st_ctime=2.0e9 if late else OLD)

    monkeypatch.setattr(Path, "lstat", lambda path: seen(path, stats[0]))
    monkeypatch.setattr(Path, "stat", lambda path, **how: seen(path, stats[1], **how))
    runs = ProcessSpec(("serve", "-m", str(tmp_path / named)))
    assert bool(changed_weights(runs, BEGAN)) is changed


def spoken(bench: Bench) -> list[dict[str, object]]:
    """What steps have said, from the journal."""
    return [
        event.body.data()
        for event in read_events(bench.context.run.journal)
        if isinstance(event.body, events.StepSay)
    ]


def test_a_step_says_what_has_changed_and_at_most_once_a_second(bench: Bench) -> None:
    steps = [{"id": "up", "title": "t", "phase": "p", "kind": "service"}]
    bench.context.record(events.RunCreated(steps=steps))
    bench.context.note("up", 1, StepState.RUNNING)
    attempt = Attempt(bench.context, "up", 1, 60.0)
    for seconds, done in ((0.0, 1), (0.5, 2), (0.6, 3), (1.0, 3), (1.0, 3), (5.0, 3), (1.0, 4)):
        bench.clock.time += seconds
        attempt.say("run", Figures(done, 4, "run"))
    assert [one["done"] for one in spoken(bench)] == [1, 3, 4]
    step = bench.context.view.step("up")
    assert step is not None
    assert step.progress is not None
    assert step.progress.figures == (4, 4, "run")


def test_the_parts_of_what_a_step_counts_do_not_count(bench: Bench) -> None:
    attempt = Attempt(bench.context, "up", 1, 60.0)
    attempt.count(Figures(3, 12, "point"))
    attempt.say("loading", Figures(5, 9, "B"))
    assert spoken(bench) == [{"text": "loading", "done": 3, "total": 12, "unit": "point"}]


def test_the_output_of_a_command_tells_how_far_it_is(bench: Bench) -> None:
    attempt = Attempt(bench.context, "up", 1, 60.0)
    attempt.path.parent.mkdir(parents=True)
    said = ["[1/4] Building a", "warning: unused", "weights:  50%|#####", "done"]
    drawn = b"weights:  20%|##\rweights:  50%|#####"
    for data in (b"[1/4] Building a\n", b"warning: unused\n", drawn, b"\ndone\n"):
        bench.clock.time += 2.0
        attempt.hear(data)
    attempt.close()
    told = [(one["text"], one["done"], one["unit"]) for one in spoken(bench)]
    assert told == [
        (said[0], 1, "file"), (said[1], 1, "file"), (said[1], 50, "%"), (said[3], 50, "%")
    ]  # fmt: skip
