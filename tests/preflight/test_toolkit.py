"""Programs, the toolkit's version and headers: what a build on this machine would find."""

import shutil
from pathlib import Path

import pytest

from console.checks.preflight import Finding, Level, toolkit
from console.checks.preflight.toolkit import findings
from console.cli import main
from console.common.errors import Exit
from console.host.activation import Activation
from console.host.sample import Card

BIG = Card("RTX PRO 6000", "GPU-1", compute=(12, 0))


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def nvcc(path: Path, release: str) -> None:
    program(path / "nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.88'")


@pytest.fixture(autouse=True)
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a shell and what the test adds, and no toolkit in the usual place."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(toolkit, "USUAL", tmp_path / "cuda")
    return place


def levels(found: list[Finding]) -> list[tuple[Level, str]]:
    return [(one.level, one.title) for one in found]


def test_a_toolkit_is_asked_its_version_and_not_looked_up(only: Path) -> None:
    assert levels(list(findings(["nvcc"], [], (13, 1), []))) == [(Level.FAIL, "program nvcc")]
    nvcc(only, "13.0")
    (old,) = findings(["nvcc"], [], (13, 1), [BIG])
    assert (old.level, "is 13.0; 13.1 or newer" in old.words) == (Level.FAIL, True)
    nvcc(only, "13.1")
    new = list(findings(["nvcc"], [], (13, 1), [BIG]))
    assert levels(new) == [(Level.OK, "program nvcc"), (Level.OK, "CUDA of nvcc 13.1")]


def test_a_toolkit_that_knows_no_such_card_is_refused_without_a_version(only: Path) -> None:
    nvcc(only, "12.4")
    assert [one.level for one in findings(["nvcc"], [], None, [BIG])] == [Level.OK, Level.FAIL]


def test_a_toolkit_that_says_nothing_is_not_known(only: Path) -> None:
    program(only / "nvcc", "exit 1")
    (found,) = findings(["nvcc"], [], (13, 1), [])
    assert found.level is Level.UNKNOWN


def test_a_toolkit_beside_path_is_named(only: Path, tmp_path: Path) -> None:
    nvcc(tmp_path / "cuda/bin", "13.1")
    (found,) = findings(["nvcc"], [], (13, 1), [])
    assert found.level is Level.FAIL
    assert f"export PATH={tmp_path}/cuda/bin:$PATH" in found.hint


def test_a_conda_environment_has_its_own(only: Path, tmp_path: Path) -> None:
    env = tmp_path / "envs/kt"
    nvcc(only, "12.4")
    nvcc(env / "bin", "13.1")
    (found,) = findings(["nvcc"], [], (13, 1), [], Activation(str(env)))
    assert found.words == f"{env}/bin/nvcc is 13.1"


def test_an_environment_that_is_not_there_is_no_go(only: Path, tmp_path: Path) -> None:
    (found,) = findings(["nvcc"], ["nccl.h"], None, [], Activation(str(tmp_path / "none")))
    assert (found.level, found.title) == (Level.FAIL, "environment")
    assert str(tmp_path / "none") in found.words


def test_headers_are_asked_of_the_compiler(
    only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unknown,) = findings([], ["nccl.h"], None, [])
    assert unknown.level is Level.UNKNOWN
    monkeypatch.setenv("PATH", f"{only}:/usr/bin:/bin")
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    env = tmp_path / "envs/kt"
    (env / "bin").mkdir(parents=True)
    found = list(findings([], ["stdio.h", "omni_none.h"], None, [], Activation(str(env))))
    assert [one.level for one in found] == [Level.OK, Level.FAIL]
    (env / "include").mkdir(parents=True)
    (env / "include/omni_none.h").write_text("#include <what_is_not_there.h>\n")
    (there,) = findings([], ["omni_none.h"], None, [], Activation(str(env)))
    assert there.level is Level.OK


def test_the_command_asks_this_machine(only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nvcc(only, "13.0")
    code = main(["check", "host", "--cuda", "13.1", "--tool", "nvcc", "--tool", "cmake"])
    said = capsys.readouterr().out
    assert code == Exit.NO_GO
    assert "nvcc is 13.0; 13.1 or newer is wanted" in " ".join(said.split())
    assert "fail    program cmake" in said
