"""How a service's program is given the probe, and what its loader's words mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.checks.preflight.architecture.names import Call, call, is_name, probe, read, version
from console.common.text import clean
from console.models.gguf.parser import parse
from tests.gguf.raw import LLAMA, Pieces, header

PROBE = "/p.gguf"
SERVER = ("-m", PROBE, "--host", "127.0.0.1", "--port", "9")
MISSED = "0.00.057 E llama_model_load: error loading model: error loading model hyperparameters: "
MISSED += "key not found in model: deepseek2.context_length"


def test_a_probe_is_a_few_dozen_bytes() -> None:
    data = probe("llama")
    assert data == header(LLAMA)
    assert len(data) < 80
    assert parse(Pieces(data)).architecture == "llama"


@pytest.mark.parametrize(
    ("words", "argv", "program"),
    [
        (["llama-server", "-m", "x"], ("llama-server", *SERVER), ("llama-server",)),
        (["/app/llama-server"], ("/app/llama-server", *SERVER), ("/app/llama-server",)),
        (
            ["numactl", "--interleave=all", "llama-server", "--device", "CUDA0", "-m", "x.gguf"],
            ("numactl", "--interleave=all", "llama-server", *SERVER),
            ("numactl", "--interleave=all", "llama-server"),
        ),
        (
            ["sh", "-c", "exec env A=b /app/llama-server -m /models/x.gguf -ngl 99"],
            ("/app/llama-server", *SERVER),
            ("/app/llama-server",),
        ),
        (["/server", "-m", "x"], ("/server", *SERVER), ("/server",)),
        (["llama-cli", "-m", "x"], ("llama-cli", "-m", PROBE), ("llama-cli",)),
        (
            ["/app/tools.sh", "--server", "-m", "/models/x.gguf", "-c", "8192"],
            ("/app/tools.sh", "--server", "-m", PROBE, "-c", "8192"),
            (),
        ),
        (
            [
                "python",
                "-m",
                "console.rehearsal.demo.engine",
                "--model=/m/x.gguf",
                "--port",
                "8000",
            ],
            ("python", "-m", "console.rehearsal.demo.engine", f"--model={PROBE}", "--port", "9"),
            (),
        ),
    ],
)
def test_the_probe_takes_the_models_place(
    words: list[str], argv: tuple[str, ...], program: tuple[str, ...]
) -> None:
    assert call(words, PROBE, 9) == Call(argv, program)


@pytest.mark.parametrize(
    "words",
    [
        ["python", "-m", "sglang.launch_server", "--model", "/models/deepseek-r1"],
        ["vllm", "serve", "meta-llama/Llama-3"],
        ["sh", "-c", "it's not closed"],
        ["sleep", "1"],
        ["./start.sh", "server", "main"],
        [],
    ],
)
def test_what_is_no_llama_cpp_is_not_called(words: list[str]) -> None:
    assert call(words, PROBE, 9) is None


def test_what_is_missed_after_the_name_accepts_it() -> None:
    said = read(["loading", MISSED, "failed to load model"], "deepseek2")
    assert said.accepted is True
    assert "deepseek2.context_length" in said.line


@pytest.mark.parametrize(
    "line",
    [
        "E llama_model_load: error loading model: unknown model architecture: 'x'",
        "llama_model_load: error loading model: error loading model architecture: "
        "unknown model architecture: 'x'",
        "error loading model: unsupported model architecture: 'x'",
        "error loading model: CLIP cannot be used as main model, use it with --mmproj instead",
    ],
)
def test_a_refusal_is_one_in_every_builds_words(line: str) -> None:
    assert read([line], "x").accepted is False


def test_anything_else_is_not_known_and_keeps_the_loaders_line() -> None:
    said = read(["starting", "E load: error loading model: tensor data is broken", "bye"], "x")
    assert (said.accepted, said.line[-6:]) == (None, "broken")
    bare = "key" + MISSED.rpartition("key")[2].replace("deepseek2", "other")
    assert read([bare], "x").accepted is None
    assert read([], "x") == read(["", " "], "x")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("version: 0.7.0 (build 11669, commit Debian)", "build 11669"),
        ("version: 6512 (0cb51d1)", "build 6512"),
        ("built with GNU 16.2.0", ""),
    ],
)
def test_the_builds_own_number(line: str, words: str) -> None:
    assert version(["ggml_cuda_init: no device", line]) == words


def test_what_can_be_a_name() -> None:
    assert is_name("deepseek3_2")
    assert is_name("ernie4_5-moe")
    assert not any(map(is_name, ("", "a b", "x" * 64, "café", "a\nb", "\x1b[31m")))


@given(st.lists(st.text(max_size=200), max_size=20), st.text(max_size=20))
def test_no_output_breaks_the_reader(lines: list[str], name: str) -> None:
    said = read(lines, name)
    assert clean(said.line) == said.line
    assert len(said.line) <= 300
