"""What `environment:` gives a command: a conda environment's programs, a file's variables."""

from pathlib import Path

import pytest

from console.common.errors import ServiceError
from console.host import process
from console.host.activation import Activation
from console.host.process import ProcessSpec
from tests.waiting import until


def conda(place: Path, *programs: str) -> str:
    (place / "bin").mkdir(parents=True)
    for name in programs:
        (place / "bin" / name).write_text("#!/bin/sh\necho here\n")
        (place / "bin" / name).chmod(0o755)
    return str(place)


def test_conda_puts_its_programs_first_and_names_a_toolkit_only_if_it_has_one(
    tmp_path: Path,
) -> None:
    bare, full = conda(tmp_path / "bare"), conda(tmp_path / "envs/kt", "nvcc")
    assert Activation(bare).variables("/usr/bin") == {
        "PATH": f"{bare}/bin:/usr/bin", "CONDA_PREFIX": bare, "CONDA_DEFAULT_ENV": "bare",
    }  # fmt: skip
    assert Activation(full).variables("/usr/bin")["CUDA_HOME"] == full
    assert Activation().variables("/usr/bin") == {}


def test_a_file_is_read_as_a_shell_quotes_and_nothing_is_expanded(tmp_path: Path) -> None:
    file = tmp_path / "vars"
    file.write_text(
        "# made by hand\n\nexport A='1 2' B=x=y\nC=\"$HOME/z\"   # as it stands\nPATH=/mine\n"
    )
    found = Activation(conda(tmp_path / "env"), str(file)).variables("/usr/bin")
    assert (found["A"], found["B"], found["C"]) == ("1 2", "x=y", "$HOME/z")
    assert found["PATH"] == "/mine", "the file has the last word"


@pytest.mark.parametrize("line", ["export A", "1A=2", "OMNI_RUN=x", "A='open", "A.B=1"])
def test_a_line_that_sets_nothing_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "vars"
    file.write_text(f"OK=1\n{line}\n")
    with pytest.raises(ServiceError) as caught:
        Activation("", str(file)).variables("/usr/bin")
    assert "line 2" in caught.value.detail


def test_a_service_finds_its_program_in_its_environment(tmp_path: Path) -> None:
    home = conda(tmp_path / "env", "serve")
    (tmp_path / "env/bin/serve").write_text("#!/bin/sh\necho $CONDA_PREFIX\n")
    log = tmp_path / "log"
    spec = ProcessSpec(("serve",), within=Activation(home))
    pid, start = process.spawn(spec, log=log, cookie="c")
    until(lambda: process.exit_code(pid, start) == 0)
    assert log.read_text() == f"{home}\n"
    with pytest.raises(ServiceError):
        process.spawn(ProcessSpec(("sh",), within=Activation(f"{home}/no")), log=log, cookie="c")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    for one in (Activation(str(tmp_path / "no")), Activation("", str(tmp_path / "no"))):
        with pytest.raises(ServiceError) as caught:
            one.variables("/usr/bin")
        assert str(tmp_path / "no") in str(caught.value)


def test_another_environment_is_another_process_and_none_keeps_older_records() -> None:
    plain = ProcessSpec(("serve",), (("A", "1"),), "/d")
    assert process.spec_sha(plain) == (
        "4c03c83943727da3a1bb808f674a6fd46ea45600a37eb95dab2175e8db6be736"
    )
    other = ProcessSpec(("serve",), (("A", "1"),), "/d", Activation("/envs/kt"))
    assert process.spec_sha(other) != process.spec_sha(plain)
