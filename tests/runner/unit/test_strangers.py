"""What answers at a service's address is the service, or the step says who it is."""

from __future__ import annotations

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
from console.host import ports
from console.host.process import ProcessSpec
from console.runner.context import Attempt, StepFailed
from console.runner.services import RunServices, refuse_stranger
from console.runtime.spec import ContainerSpec, Mount, changed_weights
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runner.unit.conftest import Bench
from tests.waiting import until

SERVER = f"{sys.executable} -S {STANDIN}"
ASIDE = "setsid {} >/dev/null & sleep 600"
"""A start script whose server has a session of its own."""


@pytest.mark.parametrize(
    ("script", "is_stranger"), [("exec {}", False), (ASIDE, False), ("sleep 600", True)]
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
        child = subprocess.Popen([*SERVER.split(), str(port)]) if is_stranger else None
        try:
            until(lambda: ports.listener(spec.url), "somebody listens")
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
