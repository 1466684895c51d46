"""The demo models, the test models and the demo engine, all of it on a real llama.cpp."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.config import locate
from console.rehearsal.demo import passage
from console.rehearsal.demo.engine import GARBLED
from console.rehearsal.demo.model import (
    MODELS,
    ModelSpec,
    byte_symbols,
    ensure_models,
    write_llama,
)
from console.runtime.answers.sanity import Garbled, judge
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


TWICE = 2 * (" ".join(passage.SENTENCES) + " ")
"""The passage, which begins again after its end."""


def _verdict(answer: dict[str, Any]) -> Garbled | None:
    choice = answer["choices"][0]
    tokens, finish = answer["usage"]["completion_tokens"], choice["finish_reason"]
    return judge(choice["message"]["content"], tokens=tokens, finish=finish)


def _command(model: Path, port: int, *flags: str) -> list[str]:
    engine = [sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(model)]
    return [
        *engine,
        "--port",
        str(port),
        "--threads",
        "1",
        "--ctx",
        "1024",
        "--alias",
        "demo",
        *flags,
    ]


@contextmanager
def _started(model: Path, log: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        running(_command(model, 0, *flags), cwd=ROOT, stdout=output, stderr=output) as engine,
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
def _served(model: Path, directory: Path, *flags: str) -> Iterator[httpx.Client]:
    """A client of an engine that serves ``model`` on a free loopback port."""
    log = directory / "engine.log"
    with (
        _started(model, log, *flags) as engine,
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
def test_demo_models_speak_to_the_token_limit(
    name: str, demo_models: dict[str, Path], tmp_path: Path
) -> None:
    with _served(demo_models[name], tmp_path) as client:
        first, again = (_complete(client, 64, cache_prompt=False) for _ in range(2))
        seeds = {"fast": 1, "baseline": 3}.get(name, 0)
        hot = [_complete(client, 256, temperature=1.5, seed=seed) for seed in range(seeds)]
    choice = first["choices"][0]
    assert choice["finish_reason"] == "length"
    assert first["usage"]["completion_tokens"] == 64
    assert choice["message"]["content"] in TWICE, "a piece of the passage, as it is written"
    assert again["choices"][0]["message"]["content"] == choice["message"]["content"]
    assert {answer["choices"][0]["finish_reason"] for answer in hot} <= {"length"}
    assert all(_verdict(answer) is None for answer in (first, *hot))


@real
def test_prompts_get_different_answers(tiny: httpx.Client) -> None:
    asked = [f"Say {number} things about {word}." for number, word in enumerate(passage.words())]
    answers = [
        _complete(tiny, 12, messages=[{"role": "user", "content": prompt}]) for prompt in asked[:24]
    ]
    assert [_verdict(answer) for answer in answers] == [None] * 24
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) >= 3


@real
@pytest.mark.parametrize("write", [models.tiny_deepseek2, full(models.visible_llama)])
def test_the_models_of_tests_speak(
    write: Callable[[Path], int], tmp_path: Path, scratch: Path
) -> None:
    write(scratch / "model.gguf")
    with _served(scratch / "model.gguf", tmp_path) as client:
        answer = _complete(client, 200, temperature=1.0, seed=1)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"] in TWICE


@real
def test_a_model_that_ends_says_one_sentence_unless_it_must_go_on(tmp_path: Path) -> None:
    models.ending_llama(tmp_path / "model.gguf")
    with _served(tmp_path / "model.gguf", tmp_path) as client:
        short = _complete(client, 200)["choices"][0]
        long = _complete(client, 200, ignore_eos=True)["choices"][0]
    assert short["finish_reason"] == "stop"
    assert short["message"]["content"].strip() in passage.SENTENCES
    assert long["finish_reason"] == "length"
    assert long["message"]["content"] in TWICE


@real
def test_a_repeat_penalty_below_one_garbles_every_answer(tmp_path: Path) -> None:
    models.tiny_llama(tmp_path / "model.gguf")
    with _served(tmp_path / "model.gguf", tmp_path, *GARBLED) as client:
        answers = [_complete(client, tokens) for tokens in (8, 64)]
    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["length"] * 2
    assert all(_verdict(answer) is not None for answer in answers)


def test_the_demo_garbles_its_candidate_as_the_engine_knows_it() -> None:
    assert locate.GARBLED == GARBLED


def test_every_piece_of_the_passage_occurs_once() -> None:
    words = passage.words()
    assert "".join(words) == " ".join(passage.SENTENCES) + " "
    assert len(words) == len(set(words))
    assert len(passage.openings()) == len(passage.SENTENCES)
    assert not set(words) & set(byte_symbols())


@pytest.mark.parametrize("channels", [32, 64, 192, 256])
def test_codes_of_pieces_are_far_apart(channels: int) -> None:
    codes = passage.codes(channels)
    assert len(codes) == len(passage.words())
    for number, code in enumerate(codes):
        agreement = (sum(a == b for a, b in zip(code, c, strict=True)) for c in codes[:number])
        assert max(agreement, default=0) <= channels * 3 // 4 + 1


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
