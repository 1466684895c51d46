"""The oracle against real builds on this machine: what it says is what happens to whole models."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from console.checks.preflight.architecture import on_host
from console.checks.preflight.architecture.names import Presence
from console.checks.preflight.architecture.on_host import HostProgram, demo_engine
from console.checks.preflight.architecture.support import Witness, accepts
from tests.ports import free_port
from tests.testbed.plugin import lacking

ROOT = Path(__file__).parents[2]
DEMO = (
    sys.executable,
    "-P",
    "-m",
    "console.rehearsal.demo.engine",
    "--model",
    "x.gguf",
    "--port",
    "1",
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time, and a port that nobody else takes meanwhile."""
    monkeypatch.setattr(on_host, "ASK_S", 120.0)
    monkeypatch.setattr(on_host, "_free_port", free_port)


@pytest.fixture(scope="module")
def demo() -> HostProgram:
    found = demo_engine(DEMO)
    if found is None:
        lacking("no real part: xllamacpp is not installed")
    return found


@pytest.fixture(scope="module")
def loaded(models: dict[str, Path]) -> dict[str, bool]:
    """Of each architecture, whether this build loaded a whole model of it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.preflight.loading", *map(str, models.values())],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    answers = json.loads(done.stdout)
    return {name: answers[str(path)] for name, path in models.items()}


@pytest.mark.alone
def test_the_loader_says_what_happens_to_whole_models(
    demo: HostProgram, loaded: dict[str, bool]
) -> None:
    answers = demo.ask(list(loaded))
    assert {name: said.accepted for name, said in answers.items()} == loaded
    assert sum(loaded.values()) >= 12
    assert sum(not one for one in loaded.values()) >= 4
    assert loaded["deepseek2"]
    assert not loaded["deepseek3_2"]


@pytest.mark.alone
def test_a_name_that_is_absent_from_the_library_never_loads(
    demo: HostProgram, loaded: dict[str, bool]
) -> None:
    """The second witness: it may hold names that do not load, never lack one that does."""
    for name in ("llama", "qwen2", "deepseek2", "deepseek32", "starcoder2", "exaone"):
        scan = demo.scan(name)
        assert scan is not None
        assert loaded[name]
        assert scan.presence is not Presence.ABSENT, name
    missing = demo.scan("deepseek3_2")
    assert missing is not None
    assert missing.presence is Presence.ABSENT


def test_the_lesson_before_the_download(demo: HostProgram) -> None:
    verdict = accepts("deepseek3_2", demo)
    assert (verdict.accepted, verdict.witness, verdict.agree) == (False, Witness.LOADER, True)
    assert "'deepseek3_2'" in verdict.words
    assert verdict.lessons == ("F-008",)
    assert verdict.knows[0] == "deepseek32", "the most alike first"
    assert "deepseek2" in verdict.knows
    assert accepts("deepseek3_2", demo).remembered


def test_a_listed_architecture_that_is_not_built_is_refused(demo: HostProgram) -> None:
    verdict = accepts("gptj", demo)
    assert (verdict.accepted, verdict.agree) == (False, False)
    assert "unsupported" in verdict.said
    assert verdict.second


def test_a_process_service_is_asked_as_it_is_run(demo: HostProgram) -> None:
    verdict = accepts("deepseek2", demo)
    assert (verdict.accepted, verdict.agree) == (True, True)
    assert verdict.engine.digest
    assert verdict.engine.name.endswith("with xllamacpp.abi3.so")


def test_a_server_program_is_called_with_nothing_but_the_model(
    tmp_path: Path, demo: HostProgram
) -> None:
    """A real loader behind a program of the usual name, which refuses what it does not know."""
    script = tmp_path / "llama-server"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "version: 6512 (0cb51d1)"; exit 0; }\n'
        '[ "$1 $3 $5" = "-m --host --port" ] && [ $# = 6 ] || { echo "error: $*"; exit 1; }\n'
        f'exec {sys.executable} -P -m console.rehearsal.demo.engine --model "$2" --port "$6"\n'
    )
    script.chmod(stat.S_IRWXU)
    engine = HostProgram([str(script), "-m", "/models/x.gguf", "--device", "CUDA0"])
    verdict = accepts("deepseek32", engine)
    assert verdict.accepted is True
    assert verdict.engine.build == "build 6512"
    assert verdict.second
    assert verdict.engine.key == "", "its library may change: nothing is remembered"
    assert accepts("deepseek3_2", engine).accepted is False


def test_programs_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_host, "ASK_S", 0.2)
    never = tmp_path / "llama-server"
    never.write_text("#!/bin/sh\nexec sleep 100\n")
    never.chmod(stat.S_IRWXU)
    for argv in ([str(never)], ["/nowhere/llama-server"], ["sleep", "0"]):
        verdict = accepts("llama", HostProgram(argv))
        assert (verdict.accepted, verdict.witness) == (None, Witness.PACKAGE)
