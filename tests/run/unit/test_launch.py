"""A runner as a systemd unit: what systemd is told, and that nothing begins behind one's back.

systemd itself stands in: what is asserted is the command that it would get.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from console.host.systemd import Detachment
from console.journal.run_dir import RunDir
from console.runner import launch
from console.runner.launch import NotStarted


class Systemd:
    """Answers systemd-run and systemctl; `word` is what the runner then says, if anything."""

    def __init__(self, run: RunDir, word: str) -> None:
        self.run_dir, self.word, self.calls = run, word, list[list[str]]()
        self.fails: BaseException | None = None

    def __call__(self, argv: Sequence[str], seconds: float, **_: Any) -> tuple[int, bytes, bytes]:
        self.calls.append(list(argv))
        if argv[0] == "systemd-run":
            if self.fails is not None:
                raise self.fails
            if self.word:
                (self.run_dir.path / "runner.word").write_text(self.word)
        return 0, b"", b""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(launch, "detachment", lambda: Detachment(True))
    return RunDir(tmp_path)


def test_the_kernels_oom_killer_leaves_the_runner_of_a_unit(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = Systemd(run, '{"ok": true}')
    monkeypatch.setattr(launch.children, "run", systemd)
    assert launch.launch(run).unit
    (call,) = systemd.calls
    assert {"--property=KillMode=process", "--property=OOMPolicy=continue"} <= {*call}


@pytest.mark.parametrize("how", ["no word", "systemd hangs", "Ctrl-C"])
def test_what_nobody_waits_for_does_not_begin(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    systemd = Systemd(run, "")
    monkeypatch.setattr(launch.children, "run", systemd)
    if how != "no word":
        stuck = subprocess.TimeoutExpired("systemd-run", 30)
        systemd.fails = KeyboardInterrupt() if how == "Ctrl-C" else stuck
    with pytest.raises(KeyboardInterrupt if how == "Ctrl-C" else NotStarted):
        launch.launch(run, timeout_s=0.1)
    assert systemd.calls[-1][:3] == ["systemctl", "--user", "kill"]
    assert systemd.calls[-1][-1] == launch.unit_of(run)
