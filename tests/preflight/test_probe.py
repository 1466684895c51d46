"""How a program is given the probe, what its loader's words mean, what a library names."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.check import Command, command_of, loader_for
from console.checks.preflight.architecture.names import (
    MARK,
    Call,
    HostPlace,
    Presence,
    call,
    digest,
    find,
    is_name,
    near,
    probe,
    read,
    survey,
    version,
)
from console.common.errors import ServiceError
from console.common.text import clean
from console.config.site.site import load_site
from console.host import units
from console.host.units import UnitSpec
from console.models.gguf.parser import parse
from console.runtime.discovery.processes import argv_of
from console.runtime.spec import ServiceSpec
from tests.gguf.raw import LLAMA, Pieces, header

PROBE = "/p.gguf"
DEMO = ("python", "-m", "console.rehearsal.demo.engine")
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
        (["numactl", "--interleave=all", "llama-server", "--device", "CUDA0", "-m", "x.gguf"],
         ("numactl", "--interleave=all", "llama-server", *SERVER),
         ("numactl", "--interleave=all", "llama-server")),
        (["sh", "-c", "exec env A=b /app/llama-server -m /models/x.gguf -ngl 99"],
         ("/app/llama-server", *SERVER), ("/app/llama-server",)),
        (["/server", "-m", "x"], ("/server", *SERVER), ("/server",)),
        (["llama-cli", "-m", "x"], ("llama-cli", "-m", PROBE), ("llama-cli",)),
        (["/app/tools.sh", "--server", "-m", "/models/x.gguf", "-c", "8192"],
         ("/app/tools.sh", "--server", "-m", PROBE, "-c", "8192"), ()),
        ([*DEMO, "--model=/m/x.gguf", "--port", "8000"],
         (*DEMO, f"--model={PROBE}", "--port", "9"), ()),
    ],
)  # fmt: skip
def test_the_probe_takes_the_models_place(
    words: list[str], argv: tuple[str, ...], program: tuple[str, ...]
) -> None:
    assert call(words, PROBE, 9) == Call(argv, program)


def test_what_is_no_llama_cpp_is_not_called() -> None:
    for words in (
        ["python", "-m", "sglang.launch_server", "--model", "/models/deepseek-r1"],
        ["vllm", "serve", "meta-llama/Llama-3"], ["sh", "-c", "it's not closed"], ["sleep", "1"],
        ["./start.sh", "server", "main"], [],
    ):  # fmt: skip
        assert call(words, PROBE, 9) is None


def test_what_is_missed_after_the_name_accepts_it() -> None:
    said = read(["loading", MISSED, "failed to load model"], "deepseek2")
    assert said.accepted is True
    assert "deepseek2.context_length" in said.line


def test_a_refusal_is_one_in_every_builds_words() -> None:
    for line in (
        "E llama_model_load: error loading model: unknown model architecture: 'x'",
        "llama_model_load: error loading model: error loading model architecture: "
        "unknown model architecture: 'x'",
        "error loading model: unsupported model architecture: 'x'",
        "error loading model: CLIP cannot be used as main model, use it with --mmproj instead",
    ):
        assert read([line], "x").accepted is False


def test_anything_else_is_not_known_and_keeps_the_loaders_line() -> None:
    said = read(["starting", "E load: error loading model: tensor data is broken", "bye"], "x")
    assert (said.accepted, said.line[-6:]) == (None, "broken")
    bare = "key" + MISSED.rpartition("key")[2].replace("deepseek2", "other")
    assert read([bare], "x").accepted is None
    assert read([], "x") == read(["", " "], "x")


def test_the_builds_own_number() -> None:
    for line, words in {
        "version: 0.7.0 (build 11669, commit Debian)": "build 11669",
        "version: 6512 (0cb51d1)": "build 6512", "built with GNU 16.2.0": "",
    }.items():  # fmt: skip
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


LIBRARY = b"\0llama\0nomic-bert\0deepseek2\0deepseek32\0deepseek-v3\0mamba"


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


STANDS = {
    "llama": Presence.WHOLE, "deepseek32": Presence.WHOLE, "bert": Presence.TAIL,
    "deepseek3_2": Presence.ABSENT, "deepseek": Presence.ABSENT,
    "mamba": Presence.ABSENT,  # no end: the file stops in the middle of it
}  # fmt: skip


def test_how_a_name_stands() -> None:
    for size in (1, 7, 1000):
        assert {name: find(cut(LIBRARY, size), name) for name in STANDS} == STANDS


def test_a_name_across_two_blocks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "CHUNK", 2048)
    noise = random.Random(1)
    for at in range(2000, 2100, 3):
        data = bytearray(noise.randbytes(6000).replace(b"\0", b"\1"))
        data[at : at + 12] = b"\0deepseek32\0"
        assert find(cut(bytes(data), 100), "deepseek32") is Presence.WHOLE
        assert "deepseek32" in near(cut(bytes(data), 100), "deepseek3_2")


def test_a_name_that_opens_the_file_is_whole() -> None:
    assert find([b"llama\0"], "llama") is Presence.WHOLE
    assert find([], "llama") is Presence.ABSENT


def test_names_like_it_come_the_most_alike_first() -> None:
    assert near([LIBRARY + b"\0"], "deepseek3_2") == ("deepseek32", "deepseek2", "deepseek-v3")
    assert near([LIBRARY], "3x") == ()


def test_the_way_from_a_program_to_its_library(tmp_path: Path) -> None:
    """As Debian has it: the program names one library, that one the next, with a run path."""
    folder = tmp_path / "opt/lib/own"
    folder.mkdir(parents=True)
    program = tmp_path / "opt/bin/llama-server"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF\0libllama-server-impl.so\0$ORIGIN/../lib/own\0")
    (folder / "libllama-server-impl.so").write_bytes(b"\x7fELF\0libllama-core.so.1\0libm.so.6\0")
    (folder / "libllama-core.so.1").write_bytes(b"\x7fELF\0" + MARK + LIBRARY + b"\0")
    found = survey(HostPlace(), str(program), {})
    assert found is not None
    assert Path(found.path) == (folder / "libllama-core.so.1")
    assert [Path(path).name for path in found.files] == [
        "llama-server", "libllama-server-impl.so", "libllama-core.so.1",
    ]  # fmt: skip
    before = digest(found.files)
    (folder / "libllama-core.so.1").write_bytes(b"\x7fELF\0" + MARK + b"\0other\0")
    assert digest(found.files) != before


def test_a_program_that_leads_nowhere(tmp_path: Path) -> None:
    script = tmp_path / "llama-server"
    script.write_text("#!/bin/sh\nexec something\n")
    assert survey(HostPlace(), str(script), {"LD_LIBRARY_PATH": f"{tmp_path}:relative"}) is None
    (tmp_path / "libllama.so").write_bytes(b"\0" + MARK + LIBRARY)
    found = survey(HostPlace(), str(script), {})
    assert found is not None, "a library beside the program is found without being named"
    assert survey(HostPlace(), str(tmp_path), {}) is None


def test_the_search_ends(tmp_path: Path) -> None:
    """Libraries that name each other for ever."""
    for number in range(60):
        following = f"libllama{number + 1}.so".encode()
        (tmp_path / f"libllama{number}.so").write_bytes(b"\0" + following + b"\0")
    reads: list[str] = []

    class Counting(HostPlace):
        def has(self, path: str) -> bool:
            reads.append(path)
            return super().has(path)

    assert survey(Counting(), str(tmp_path / "libllama0.so"), {}) is None
    assert len(reads) < names.MAX_TRIES + 3 * names.MAX_FILES


@pytest.mark.parametrize("up", [True, False])
def test_the_build_of_a_unit_is_what_its_first_process_runs(
    up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit file may name a script, and another one by now; one that is down tells nothing."""
    spec = ServiceSpec("baseline", "http://127.0.0.1:9", UnitSpec("a.service"))
    main = os.getpid() if up else 0
    monkeypatch.setattr(units, "look", lambda _: units.UnitState("loaded", "active", main))
    if up:
        assert command_of(spec, pytest.fail).argv == argv_of(os.getpid())
        return
    with pytest.raises(ServiceError, match="does not run"):
        command_of(spec, pytest.fail)


def test_arguments_that_are_read_as_the_baselines_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    args = '["-c", "8192", "--n-gpu-layers", "19", "-fa", "on"]'
    told = f"{{container: x, url: 'http://127.0.0.1:8080', args: {args}}}"
    path.write_text(f"schema: omni.site/v1\nname: ws\nbaseline: {told}\n")
    site = load_site(path).model
    alike = ("--ctx_size", "8192", "-ngl", "19", "--flash-attn", "on")
    assert loader_for(site, "", "", alike, None).own
    assert not loader_for(site, "", "", ("-c", "8193", *alike[2:]), None).own
    assert not loader_for(site, "", "", (*alike, "--unheard-of"), None).own


@pytest.mark.parametrize(
    ("argv", "entrypoint", "image", "engine"),
    [
        ("vllm serve /m --tensor-parallel-size 2", "", "", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model /m", "", "", "vllm"),
        ("--model /m --max-model-len 8192", "", "vllm/vllm-openai:v0.33.0", "vllm"),
        ("/m --port 8000", "vllm serve", "mine:latest", "vllm"),
        ("python3 -m sglang.launch_server --model-path /m", "", "", ""),
        ("python3 -m sglang.launch_server --model-path /m", "", "based-on-vllm:1", ""),
        ("llama-server -m m.gguf", "", "", ""),
        ("--model-path /m", "", "", ""),
    ],
)
def test_a_vllm_line_is_read_with_vllms_own_table(
    tmp_path: Path, argv: str, entrypoint: str, image: str, engine: str
) -> None:
    """Whoever starts it: its options were read as SGLang's, and its context forgotten."""
    path = tmp_path / "site.yaml"
    told = "{container: x, url: 'http://127.0.0.1:8080'}"
    path.write_text(f"schema: omni.site/v1\nname: ws\nbaseline: {told}\n")
    site = load_site(path).model
    lent = Command("cand", tuple(argv.split()), {}, image, tuple(entrypoint.split()))
    assert loader_for(site, "", "", (), None, lent).engine == engine
    assert loader_for(site, "", "llama.cpp", (), None, lent).engine == "llama.cpp"
    if not (image or entrypoint):
        assert loader_for(site, "", "", argv.split(), None).engine == engine
