"""What `env`, and a shell's `NAME=VALUE`, do before a program, as coreutils' own `env` does it."""

import subprocess
from pathlib import Path

import pytest

from console.checks.preflight.architecture.check import Command, loader_for
from console.checks.preflight.architecture.on_host import HostProgram
from console.common.options.command_line import own_words
from console.common.options.engines import LLAMA, VLLM, engine_of
from console.common.options.start import start
from console.config.site.site import load_site
from console.models.sizing.flags import judge

SERVICE = {"HERE": "service", "KEPT": "1"}


@pytest.mark.parametrize(
    "prefix",
    [
        ["HERE=env"],
        ["-i", "HERE=env", "NEW="],
        ["-", "HERE=env"],
        ["-u", "HERE"],
        ["--unset=HERE", "--", "NEW=a=b"],
        ["--unset", "HERE", "HERE=after"],
        ["-iuKEPT", "NEW=1"],
        ["-C", "/", "HERE=env"],
        ["--chdir=/", "--ignore-env", "NEW=1"],
        ["-S", "-u KEPT HERE='a b' NEW=1"],
        ["-SHERE=env NEW=1"],
        ["--split-string=-i HERE=env", "NEW=2"],
        ["/usr/bin/env", "-u", "KEPT", "HERE=inner"],
        ["-v", "HERE=env"],
    ],
)
def test_the_variables_are_those_that_env_itself_gives(prefix: list[str]) -> None:
    ran = subprocess.run(
        ["/usr/bin/env", *prefix, "/usr/bin/env"], env=SERVICE, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    variables = dict(line.split("=", 1) for line in ran.stdout.splitlines())
    started = start(["/usr/bin/env", *prefix, "/x/llama-server", "-c", "8"], SERVICE)
    assert started == (["/x/llama-server", "-c", "8"], variables)


@pytest.mark.parametrize(
    ("argv", "words", "value"),
    [
        (["env", "A=1", "llama-server", "-c", "8"], ["-c", "8"], "1"),
        (["A=1", "llama-server", "-c", "8"], ["-c", "8"], "1"),
        (["numactl", "-i", "all", "env", "A=1", "llama-server", "-c", "8"], ["-c", "8"], "1"),
        (["env", "A=1", "/opt/my-build", "-c", "8"], ["-c", "8"], "1"),
        (["sh", "-c", "A=1 exec llama-server -c 8"], ["-c", "8"], "1"),
        (["sh", "-c", "exec env A=1 llama-server -c 8"], ["-c", "8"], "1"),
        (["env", "-S", "A=1 llama-server -c 8"], ["-c", "8"], "1"),
        (["conda", "run", "-n", "env", "llama-server", "-c", "8"], ["-c", "8"], None),
        (["llama-server", "--alias", "env", "A=1"], ["--alias", "env", "A=1"], None),
        (["--alias", "env", "A=1"], ["--alias", "env", "A=1"], None),
        (["sh", "-c", "A=$B llama-server"], None, None),
    ],
)
def test_the_words_behind_it(argv: list[str], words: list[str] | None, value: str | None) -> None:
    assert own_words(argv) == words
    assert start(argv).env.get("A") == value


def test_the_engine_is_the_program_behind_it() -> None:
    assert engine_of(["env", "CUDA_VISIBLE_DEVICES=0", "vllm", "serve", "m"]) is VLLM
    assert engine_of(["A=1", "/x/llama-server", "-m", "a.gguf"]) is LLAMA
    assert engine_of(["env"]) is engine_of(["env", "A=1"]) is None


def test_an_empty_value_is_refused_as_in_the_services_own_variables() -> None:
    argv = ["env", "LLAMA_ARG_N_CPU_MOE=", "llama-server", "-m", "x.gguf"]
    complaints = judge.judged(("llama_cpp",), argv)
    assert "expected a whole number" in complaints[0].words


def test_a_loader_has_what_it_sets_with_envs_precedence(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "schema: omni.site/v1\nname: s\nbaseline: {process: {argv: [llama-server]}, "
        "url: 'http://127.0.0.1:9'}\n"
    )
    site = load_site(path).model
    argv = ("env", "CUDA_VISIBLE_DEVICES=0", "vllm", "serve", "x")
    lent = Command("service", argv, {"CUDA_VISIBLE_DEVICES": "1", "B": "2"})
    loader = loader_for(site, "", "", (), None, lent)
    assert (loader.engine, loader.env) == ("vllm", {"CUDA_VISIBLE_DEVICES": "0", "B": "2"})
    assert loader_for(site, "", "", argv, None).env == {"CUDA_VISIBLE_DEVICES": "0"}
    inside = Command("service", ("-c", "8"), {}, "image", ("env", "A=1", "llama-server"))
    assert loader_for(site, "", "", (), None, inside).env == {"A": "1"}


@pytest.mark.parametrize(
    "prefix", [["/usr/bin/env", "CUDA_VISIBLE_DEVICES=0"], ["nice", "-n", "5"]]
)
def test_a_build_is_called_by_its_program_and_asked_without_a_card(
    tmp_path: Path, prefix: list[str]
) -> None:
    program = tmp_path / "llama-server"
    program.write_text('#!/bin/sh\necho "version: 1 (card $CUDA_VISIBLE_DEVICES.)"\n')
    program.chmod(0o755)
    build = HostProgram([*prefix, str(program), "-m", "x.gguf"])
    assert build.program == str(program)
    assert build.identity().name == "llama-server"
    lines = build.load(b"GGUF")
    assert lines
    assert "card 0" not in lines[0]
