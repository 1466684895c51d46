"""Whatever lies in the current directory, the console's own processes run the console's code."""

import re
import subprocess
from pathlib import Path

import pytest

from console.common import paths
from console.common.paths import module_argv
from console.config.locate import demo_site
from console.config.site.site import load_site
from console.frontends.tui.watch.watchers import Watchers
from console.host.sampler import GpuWatch
from console.recovery.rollback.sealed_plan import Baseline
from console.runner.prepare.seal import sealed_plan
from tests.rollback.conftest import Stage
from tests.watch.conftest import point, serves

TRAP = "raise SystemExit('hijacked')\n"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a `json.py` and a package `console` that are somebody else's."""
    place = tmp_path / "hostile"
    (place / "console").mkdir(parents=True)
    (place / "console" / "__init__.py").write_text(TRAP)
    for name in ("json", "subprocess", "argparse", "ctypes"):
        (place / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("module", "argument", "words"),
    [
        ("console.cli", "--help", "rollback"),
        ("console.demo.engine", "--help", "--port"),
        ("console.guard.helper", "--help", "--protected"),
        ("console.recovery.rollback.standby", "/none", "plan.json"),
        ("console.host.gpu.child", "", "usage"),
        ("console.host.gpu.nvml", "", ""),
        ("console.rehearsal.demo.engine", "--help", "--port"),
    ],
)
def test_a_module_is_ours(hostile: Path, module: str, argument: str, words: str) -> None:
    argv = [*module_argv(module), *([argument] if argument else [])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert "hijacked" not in said
    assert words in said
    assert said


def test_the_emergency_command_restores_from_there(hostile: Path, stage: Stage) -> None:
    point(stage)
    control = Watchers()
    try:
        press = control.emergency.press()
        assert press.how == "spawned"
        progress = serves(press.progress)
        assert progress.lines[0]["rung"] == "fence"
    finally:
        control.close()


def test_what_is_written_down_for_later_is_ours_as_well() -> None:
    site = load_site(demo_site())
    plan = sealed_plan(site, Baseline("b", "process", "http://127.0.0.1:1"), run_dir="/x/run")
    assert plan.finish_argv[:4] == module_argv("console.cli")
    assert str(module_argv("console.rehearsal.demo.engine")[1:]).strip("()").replace("'", '"') in (
        site.path.read_text()
    )
    assert tuple(GpuWatch()._child._argv[:4]) == module_argv("console.host.gpu.child")


def test_there_is_no_other_way_to_start_a_module() -> None:
    root = Path(paths.__file__).parent
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        # llama-server has one too; what runs inside a stand-in has an interpreter of its own
        if re.search(r"""["']-m["'],(?! "--model")""", path.read_text())
        and "inside" not in path.parts
    ]
    assert found == ["paths.py"]
