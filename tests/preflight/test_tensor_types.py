"""A build is asked for the types of a file's tensors, and of a cache, as for its architecture."""

import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import names, on_host, tensor_types
from console.checks.preflight.architecture.check import check, locate
from console.checks.preflight.architecture.names import MARK, LoaderAnswer, Presence, Scan
from console.checks.preflight.architecture.on_host import HostProgram, demo_engine
from console.checks.preflight.architecture.support import Identity
from console.checks.preflight.architecture.tensor_types import cache_findings, findings, verdict_on
from console.checks.preflight.compatibility import Loader
from console.common.errors import ServiceError
from console.models.gguf.header import BY_NUMBER, Header, Tensor, pad, row_bytes, type_name, type_of
from console.models.gguf.read import read_header
from tests.gguf import raw
from tests.ports import free_port
from tests.testbed.plugin import lacking
from tests.waiting import some

MISSED = "error loading model: error loading model hyperparameters: key not found in model: llama.x"


def tensor(number: int, name: str = "blk.0.ffn_up.weight") -> Tensor:
    return Tensor(name, (256, 8), number, type_name(number), None)


@dataclass
class Build:
    """A build that knows some types and ends in words of its own at any other."""

    knows: tuple[int, ...] = ()
    words: str = "E gguf_init: tensor 'probe.{}' has invalid ggml type {}. should be in [0, 43)"
    caches: tuple[str, ...] = ()
    presence: Presence | None = None
    trouble: str = ""
    started: list[tuple[int, ...]] = field(default_factory=list)

    def identity(self) -> Identity:
        return Identity("llama-server", "sha256:1", "build 11434")

    def build(self) -> str:
        return "build 11434"

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> dict[str, LoaderAnswer]:
        return {name: LoaderAnswer(True) for name in architectures}

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None
    ) -> Sequence[str]:
        if self.trouble:
            raise ServiceError(self.trouble)
        if words and words[1] not in ("f16", *self.caches):
            return [f'error while handling argument "-ctk": Unsupported cache type: {words[1]}']
        types = [int(n) for n in re.findall(rb"probe\.(\d+)\x02\0\0\0", model)]
        self.started.append(tuple(types))
        bad = next((n for n in types if n not in self.knows), None)
        return [MISSED] if bad is None else [self.words.format(bad, bad)]

    def scan(self, name: str, mark: bytes = MARK) -> Scan | None:
        seen = self.presence if mark == names.TYPE_MARK else Presence.WHOLE
        return Scan("libggml-base.so", seen) if seen else None

    def similar(self, name: str) -> tuple[str, ...]:
        return ()


def test_a_type_that_the_build_lacks_is_named_with_a_tensor_that_has_it() -> None:
    build = Build(knows=(0, 12))
    found = verdict_on([tensor(0, "a"), tensor(12, "b"), tensor(144), tensor(144, "c")], "x", build)
    finding = found.finding()
    assert finding.level is Level.FAIL
    assert "IQ4_KS (type 144) of blk.0.ffn_up.weight" in finding.text
    assert "invalid ggml type 144" in finding.text
    assert "ik_llama.cpp" in finding.hint


def test_known_types_take_one_start() -> None:
    build = Build(knows=(0, 12, 14))
    found = verdict_on([tensor(0), tensor(12), tensor(14)], "llama", build)
    assert (found.finding().level, build.started) == (Level.OK, [(0, 12, 14)])


def test_a_type_of_nobody_is_asked_for_alone() -> None:
    build = Build(knows=(0,))
    finding = verdict_on([tensor(0), tensor(999)], "llama", build).finding()
    assert finding.level is Level.FAIL
    assert "999" in finding.text
    assert "quantization" in finding.hint


def test_a_build_that_aborts_with_a_type_and_not_without_it_refuses_it() -> None:
    build = Build(knows=(0,), words="it was ended by signal 8")
    assert verdict_on([tensor(0), tensor(40)], "llama", build).finding().level is Level.FAIL


def test_words_that_are_not_understood_make_it_unknown() -> None:
    build = Build(knows=(0,), words="cannot open shared object file")
    finding = verdict_on([tensor(0), tensor(40)], "llama", build).finding()
    assert (finding.level, "NVFP4" in finding.text) == (Level.UNKNOWN, True)


@pytest.mark.parametrize(
    ("presence", "level"),
    [(Presence.ABSENT, Level.FAIL), (Presence.WHOLE, Level.UNKNOWN), (None, Level.UNKNOWN)],
)
def test_without_a_loader_only_a_name_that_is_absent_says_something(
    presence: Presence | None, level: Level
) -> None:
    build = Build(trouble="exec format error", presence=presence)
    assert verdict_on([tensor(144)], "llama", build).finding().level is level


def test_a_cache_type_is_asked_of_the_builds_own_options() -> None:
    build = Build(caches=("q6_0",))
    assert cache_findings(("f16", "q8_0", "q6_0"), build) == []
    (finding,) = cache_findings(("q8_KV", "q8_KV"), build)
    assert (finding.level, "q8_KV" in finding.text) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("engine", "sure", "level"),
    [
        ("", True, Level.FAIL),
        ("ik_llama.cpp", True, Level.FAIL),
        ("llama.cpp", False, Level.UNKNOWN),
        ("ik_llama.cpp", False, Level.WARN),
    ],
)
def test_a_refusal_of_a_build_that_is_not_meant_is_no_verdict(
    engine: str, sure: bool, level: Level
) -> None:
    loader = Loader(engine=engine, args=("-ctk", "q8_KV", "--cache_type_v", "q6_0"))
    header = Header(3, "little", 32, 2, {}, (tensor(12), tensor(144)), 0)
    found = findings(Build(), loader, header, sure=sure)
    assert [one.level for one in found] == [level] * 3
    assert findings(Build(), Loader(), replace(header, tensors=(tensor(12),)), sure=True) == []


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> HostProgram:
    monkeypatch.setattr(on_host, "ASK_S", 120.0)
    monkeypatch.setattr(on_host, "_free_port", free_port)
    words = (sys.executable, "-P", "-m", "console.rehearsal.demo.engine", "--model", "x.gguf")
    found = demo_engine((*words, "--port", "1"))
    if found is None:
        lacking("no real part: xllamacpp is not installed")
    return found


@pytest.mark.alone
def test_a_real_loader_knows_llama_cpps_types_and_none_of_iks(demo: HostProgram) -> None:
    own = [number for number in BY_NUMBER if number not in (9, 15)]
    found = verdict_on([tensor(number) for number in own], "llama", demo)
    assert (found.refused, found.unknown) == ((), ())
    some_of_ik = (133, 144, 157, 219, 398)
    found = verdict_on([tensor(number) for number in (0, *some_of_ik)], "llama", demo)
    assert tuple(one.number for one in found.refused) == some_of_ik
    assert all("invalid ggml type" in one.reply.line for one in found.refused)


@pytest.mark.alone
def test_names_of_types_stand_in_a_real_library(demo: HostProgram) -> None:
    for number, kind in BY_NUMBER.items():
        spelled = {kind.name.lower(), tensor_types._spelled(kind.name)}
        there = {some(demo.scan(name, names.TYPE_MARK)).presence for name in spelled}
        assert there != {Presence.ABSENT}, (number, spelled)
    assert some(demo.scan("iq4_ks", names.TYPE_MARK)).presence is Presence.ABSENT


def of_types(path: Path, numbers: Sequence[int]) -> str:
    """A file whose tensors have these types, with data for all of them."""
    tensors, offset = [], 0
    for number in numbers:
        tensors.append(raw.tensor(b"blk.0.t%d.weight" % number, [256], number, offset))
        kind = type_of(number)
        offset += pad(row_bytes(kind, 256), 32) if kind else 512
    data = raw.header(raw.LLAMA, tensors=tensors)
    path.write_bytes(data + bytes(-len(data) % 32 + offset))
    return str(path)


def test_a_file_of_ik_llama_cpp_is_refused_for_a_build_of_llama_cpp(tmp_path: Path) -> None:
    answer = check(of_types(tmp_path / "m.gguf", [500]), Build(knows=(0,)))
    finding = some(answer.finding())
    assert (finding.level, finding.title) == (Level.FAIL, "tensor types")
    assert any("blk.0.t500.weight" in line for line in answer.lines(200))
    assert answer.to_json()["types"][0]["accepted"] is False


def test_a_last_tensor_of_an_unknown_type_ends_with_the_file(tmp_path: Path) -> None:
    header = read_header(of_types(tmp_path / "m.gguf", [500, 501])).header
    assert [one.bytes for one in header.tensors or ()] == [512, 512]


def test_a_table_of_tensors_that_no_loader_takes_is_no_good_news(tmp_path: Path) -> None:
    path = Path(of_types(tmp_path / "m.gguf", [0, 1]))
    path.write_bytes(path.read_bytes().replace(raw.u64(1024), raw.u64(1056)))
    finding = some(check(str(path), Build(knows=(0, 1))).finding())
    assert (finding.level, finding.title) == (Level.FAIL, "tensor types")


def test_all_shards_of_an_address_are_read() -> None:
    places, _ = locate("https://h.example/m-00002-of-00003.gguf?x=00002-of", ())
    assert places == ("https://h.example/m-00002-of-00003.gguf?x=00002-of",)
    places, _ = locate("https://h.example/m-00002-of-00003.gguf", ())
    assert [place[18:] for place in places] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
