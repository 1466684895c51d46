"""What a point of a tuning step is said to have died of, and what names its setting."""

import socket
from itertools import pairwise
from pathlib import Path

import pytest

from console.host.process import ProcessSpec
from console.journal.state import Cause
from console.runner.executors.tune_points import ended
from console.runner.prepare.tuning import files_named, free_port_after, model_of
from console.runtime.spec import ServiceSpec

BROKE, KILLED = "exit code 1", "ended by SIGKILL"


@pytest.mark.parametrize(
    ("cause", "detail", "said", "oom", "fate"),
    [
        (Cause.EXIT_CODE, BROKE, ["CUDA error: out of memory"], False, "card"),
        (Cause.EXIT_CODE, BROKE, ["cudaMalloc failed: out of memory", "bye"], False, "card"),
        (Cause.EXIT_CODE, BROKE, ["terminate called after std::bad_alloc"], False, "host"),
        (Cause.EXIT_CODE, BROKE, ["failed to allocate CPU buffer of size 9"], False, "host"),
        (Cause.OOM_KILL, KILLED, [], False, "host"),
        (Cause.SIGNAL, KILLED, [], True, "host"),
        (Cause.SIGNAL, KILLED, [], False, "failed"),  # anybody may send one
        (Cause.EXIT_CODE, BROKE, [], True, "failed"),
        (Cause.EXIT_CODE, BROKE, ["loaded /srv/mushroom/bloom.gguf", "error: -x"], False, "failed"),
        (Cause.EXIT_CODE, BROKE, ["KV headroom 3 GiB", "invalid argument"], False, "failed"),
        (
            Cause.EXIT_CODE, BROKE, ["failed to mlock 9 bytes: Cannot allocate memory"], False,
            "failed",
        ),
    ],
)  # fmt: skip
def test_only_evidence_makes_it_memory(
    cause: Cause, detail: str, said: list[str], oom: bool, fate: str
) -> None:
    assert ended(cause, detail, said, oom=oom).fate == fate


def test_another_file_under_the_same_name_is_another_setting(tmp_path: Path) -> None:
    model, folder = tmp_path / "m-00001-of-00002.gguf", tmp_path / "checkpoint"
    folder.mkdir()
    for path in (model, tmp_path / "m-00002-of-00002.gguf", folder / "a.safetensors"):
        path.write_text("x")
    draft = tmp_path / "draft.gguf"
    draft.write_text("x")
    argv = ("engine", "-m", str(model), f"--kt={folder}")
    seen = [files_named(None, argv, {"-md": [str(draft)]})]
    for path in (draft, folder / "a.safetensors", tmp_path / "m-00002-of-00002.gguf"):
        path.write_text("longer")
        seen.append(files_named(None, argv, {"-md": [str(draft)]}))
    assert all(one != two for one, two in pairwise(seen))


def test_what_an_engine_writes_is_no_part_of_the_setting(tmp_path: Path) -> None:
    log, slots = tmp_path / "engine.log", tmp_path / "slots"
    slots.mkdir()
    argv = ("engine", "--log-file", str(log), f"--slot-save-path={slots}")
    before = files_named(None, argv, {})
    log.write_text("a line")
    (slots / "0.bin").write_text("x")
    assert files_named(None, argv, {}) == before


def test_a_word_too_long_for_a_file_name_is_no_file() -> None:
    template = "{% for message in messages %}" * 20
    assert files_named(None, ("engine", "--chat-template", template), {"-ot": ["x" * 300]}) == []


def test_the_model_is_the_gguf_and_not_pythons_module(tmp_path: Path) -> None:
    model = tmp_path / "x.gguf"
    model.touch()

    def spec(*argv: str) -> ServiceSpec:
        return ServiceSpec("x", "http://127.0.0.1:1", ProcessSpec(argv))

    assert model_of(spec("python", "-m", "engine", "--model", str(model))) == model
    assert model_of(spec("llama-server", f"--model={model}")) == model
    assert model_of(spec("llama-server", "-m", str(tmp_path / "other.gguf"))) is None
    assert model_of(spec("python", "-m", "sglang", "--model-path", str(tmp_path))) is None


def test_a_port_that_is_taken_is_not_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert free_port_after(taken - 1) != taken
    assert free_port_after(65535) < 65535
