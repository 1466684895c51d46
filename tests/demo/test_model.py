"""The demo models, the test models and the demo engine, all of it on a real llama.cpp."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.rehearsal.demo.model import MODELS, ModelSpec, ensure_models, write_llama
from tests.children import running
from tests.testbed import models
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
HELLO = [{"role": "user", "content": "Hello there."}]
START_S = 60.0
real = pytest.mark.alone
"""These start an engine."""


def full(case: object) -> Any:
    """A case for the whole suite: another stands for it in the first tier."""
    return pytest.param(case, marks=pytest.mark.full)


def _command(model: Path, port: int) -> list[str]:
    engine = [sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(model)]
    return [*engine, "--port", str(port), "--threads", "1", "--ctx", "1024", "--alias", "demo"]


@contextmanager
def _started(model: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        running(_command(model, 0), cwd=ROOT, stdout=output, stderr=output) as engine,
    ):
        yield engine


def _fails(model: Path, port: int = 0) -> str:
    """The output of an engine that must end by itself with exit code 1."""
    ended = subprocess.run(
        _command(model, port), cwd=ROOT, capture_output=True, text=True, timeout=START_S
    )
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


def _address(engine: subprocess.Popen[bytes], log: Path) -> str:
    """The URL the engine serves on, once it says so."""

    def said() -> re.Match[str] | None:
        text = log.read_text(errors="replace")
        assert engine.poll() is None, text
        # llama.cpp may have begun a line of its own in front of it
        return re.search(r"engine: serving \S+ on (http://\S+)$", text, re.MULTILINE)

    found = until(said, "the engine serves", where=lambda: log.read_text(errors="replace"))
    return found[1]


@contextmanager
def _served(model: Path, directory: Path) -> Iterator[httpx.Client]:
    """A client of an engine that serves ``model`` on a free loopback port."""
    log = directory / "engine.log"
    with (
        _started(model, log) as engine,
        httpx.Client(base_url=_address(engine, log), timeout=60) as client,
    ):
        yield client


def _complete(client: httpx.Client, tokens: int, **extra: Any) -> dict[str, Any]:
    asked = {"messages": HELLO, "max_tokens": tokens, "temperature": 0, **extra}
    answer = client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.fixture(scope="module")
def demo_models() -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        yield ensure_models(Path(directory))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one engine for all tests that only ask it something."""
    place = tmp_path_factory.mktemp("tiny")
    models.tiny_llama(place / "model.gguf")
    with _served(place / "model.gguf", place) as client:
        yield client


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory for large files, which pytest would keep for three sessions."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@real
@pytest.mark.parametrize("name", [one if one == "fast" else full(one) for one in MODELS])
def test_demo_models_write_readable_text_to_the_token_limit(
    name: str, demo_models: dict[str, Path], tmp_path: Path
) -> None:
    with _served(demo_models[name], tmp_path) as client:
        first, again = (_complete(client, 64, cache_prompt=False) for _ in range(2))
        seeds = {"fast": 1, "baseline": 3}.get(name, 0)
        hot = [_complete(client, 512, temperature=1.5, seed=seed) for seed in range(seeds)]
    choice = first["choices"][0]
    assert choice["finish_reason"] == "length"
    assert first["usage"]["completion_tokens"] == 64
    assert re.fullmatch(r"[a-z ,.]{50,}", choice["message"]["content"])
    assert again["choices"][0]["message"]["content"] == choice["message"]["content"]
    assert {one["choices"][0]["finish_reason"] for one in hot} <= {"length"}, "none ends early"


@real
def test_an_unknown_architecture_fails_in_the_words_of_llama_cpp(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    models.unknown_architecture(model)
    output = _fails(model)
    assert "unknown model architecture: 'deepseek3_2'" in output
    # llama.cpp logs from a thread of its own: its last words may come after ours, or before them
    # in the same line
    assert "engine: llama.cpp does not serve " in output


def test_ensure_models_writes_once_and_repairs(scratch: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    paths = ensure_models(scratch, lambda *call: calls.append(call))
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    assert sum(sizes.values()) < 250e6
    for name in MODELS:
        reports = [(done, total) for model, done, total in calls if model == name]
        assert reports == sorted(reports)
        assert reports[-1] == (sizes[name], sizes[name])
    before = {name: path.read_bytes() for name, path in paths.items()}
    calls.clear()
    ensure_models(scratch, lambda *call: calls.append(call))
    assert not calls
    with paths["fast"].open("r+b") as file:
        file.truncate(sizes["fast"] - 1)
    with paths["baseline"].open("r+b") as file:
        file.write(b"GGML")
    ensure_models(scratch, lambda *call: calls.append(call))
    assert {name for name, _, _ in calls} == {"fast", "baseline"}
    assert {name: path.read_bytes() for name, path in paths.items()} == before


def test_an_interrupted_write_leaves_nothing(scratch: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_models(scratch, interrupt)
    assert not list(scratch.iterdir())


def test_what_a_killed_writer_left_is_removed(demo_models: dict[str, Path]) -> None:
    place = demo_models["fast"].parent
    old, fresh = place / ".fast.gguf.1.partial", place / ".slow.gguf.2.partial"
    for left in (old, fresh):
        left.touch()
    os.utime(old, (0, 0))
    ensure_models(place)
    assert fresh.exists()
    assert not old.exists()


def test_heads_have_to_fit_the_width(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a multiple of twice 7 heads"):
        write_llama(tmp_path / "m", ModelSpec("m", blocks=1, seed=1, width=64, heads=7))
    assert not list(tmp_path.iterdir())


@real
def test_the_engine_answers_like_llama_server(tiny: httpx.Client) -> None:
    assert tiny.get("/health").json() == {"status": "ok"}
    _complete(tiny, 4)
    props = tiny.get("/props").json()
    slots = tiny.get("/slots").json()
    assert props["total_slots"] == 1
    assert props["default_generation_settings"]["n_ctx"] == 1024
    assert [(slot["n_ctx"], slot["is_processing"]) for slot in slots] == [(1024, False)]
    assert re.search(r"llamacpp:tokens_predicted_total [1-9]", tiny.get("/metrics").text)
    assert tiny.get("/v1/models").json()["data"][0]["id"] == "demo"


@real
@pytest.mark.parametrize("number", [signal.SIGTERM, full(signal.SIGINT)])
def test_a_signal_ends_the_engine_at_once_even_amid_an_answer(
    number: signal.Signals, demo_models: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "engine.log"
    with _started(demo_models["slow"], log) as engine:
        address = _address(engine, log)
        body = {"messages": HELLO, "stream": True}
        with httpx.stream("POST", f"{address}/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
            engine.send_signal(number)
            assert engine.wait(timeout=START_S) == 0
    # the words of two loggers, in either order
    assert "engine: stopped\n" in log.read_text()


@real
def test_the_engine_listens_on_loopback_only_and_shares_no_port(
    tiny: httpx.Client, tmp_path: Path
) -> None:
    model, port = tmp_path / "model.gguf", tiny.base_url.port or 0
    models.tiny_llama(model)
    assert tiny.base_url.host == LOOPBACK
    with socket.create_server(("127.0.0.2", port)):
        pass  # a wildcard listener would hold this address as well
    assert _fails(model, port) == f"engine: port {port} on 127.0.0.1 is taken\n"


def test_a_missing_model_is_one_clear_line(tmp_path: Path) -> None:
    model = tmp_path / "absent.gguf"
    assert _fails(model) == f"engine: cannot read the model {model}: No such file or directory\n"


def test_a_missing_package_says_what_to_install(tmp_path: Path) -> None:
    script = "import sys; sys.modules['xllamacpp'] = None\n"
    script += "from console.rehearsal.demo.engine import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "--model", "m", "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_S)
    assert ended.returncode == 1
    expected = "the demo engine is not installed: pip install 'omni-console[demo]'"
    assert ended.stderr == f"engine: {expected}\n"
