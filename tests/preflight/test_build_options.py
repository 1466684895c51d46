"""What a build's own reader of options says of a command line."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import options
from console.checks.preflight.architecture.names import MARK, LoaderAnswer, Scan
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.architecture.support import Identity
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.of_site import Asking
from console.checks.preflight.on_start import not_there
from console.common.errors import ServiceError
from console.models.hub.checkpoint import Format
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import Build as BuildFacts
from tests.testbed.plugin import lacking

MISSED = "error loading model: error loading model hyperparameters: key not found in model: llama.x"


@dataclass
class Build:
    """A build without some options."""

    lacks: tuple[str, ...] = ()
    trouble: str = ""
    says: str = MISSED
    started: list[tuple[str, ...]] = field(default_factory=list)

    def identity(self) -> Identity:
        return Identity("llama-server", "sha256:1", "build 11669")

    def build(self) -> str:
        return "build 11669"

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> dict[str, LoaderAnswer]:
        return {name: LoaderAnswer(True) for name in architectures}

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None
    ) -> Sequence[str]:
        self.started.append(tuple(words))
        if self.trouble == "silent":
            return []
        if self.trouble:
            raise ServiceError(self.trouble)
        bad = next((word for word in words if word in self.lacks), None)
        return [self.says] if bad is None else [f"error: invalid argument: {bad}"]

    def scan(self, name: str, mark: bytes = MARK) -> Scan | None:
        return None

    def similar(self, name: str) -> tuple[str, ...]:
        return ()


def test_a_build_says_of_each_option_whether_it_takes_it() -> None:
    build = Build(lacks=("--no-mmap",))
    words = {"--no-mmap": ("--no-mmap",), "--flash-attn": ("-fa",)}
    assert options.takes(build, words) == {"--no-mmap": False, "--flash-attn": True}


@pytest.mark.parametrize("trouble", ["it cannot be run", "silent"])
def test_what_a_build_does_not_tell_is_left_out(trouble: str) -> None:
    assert options.takes(Build(trouble=trouble), {"--mlock": ("--mlock",)}) == {}


def test_an_older_build_without_a_newer_option_is_a_refusal() -> None:
    line = "-m x.gguf -c 4096 --n-cpu-moe 3 --load-mode none -t 8 --port 1 -ot a=CUDA0 --lora x"
    build = Build(lacks=("--load-mode",))
    (found,) = options.findings(build, Loader(args=tuple(line.split())), sure=True)
    assert (found.level, "--load-mode" in found.words) == (Level.FAIL, True)
    assert build.started[0] == ("-c", "4096", "--n-cpu-moe", "3", "--load-mode", "none")
    (found,) = options.findings(build, Loader(args=tuple(line.split())), sure=False)
    assert found.level is Level.UNKNOWN
    assert options.findings(Build(), Loader(args=tuple(line.split())), sure=True) == []


def test_the_real_build_refuses_what_it_has_no_longer(server: str) -> None:
    words = {
        "--no-mmap": ("--no-mmap",), "--mlock": ("--mlock",), "--flash-attn": ("-fa",),
        "--draft-max": ("--draft", "16"), "--log-colors": ("--log-colors",), "-c": ("-c", "512"),
    }  # fmt: skip
    answers = options.takes(HostProgram((server,)), words)
    assert answers == {**dict.fromkeys(words, False), "-c": True}
    line = ("-c", "4096", "--reasoning-budget", "-7")
    (found,) = options.findings(HostProgram((server,)), Loader(args=line), sure=True)
    assert "--reasoning-budget" in found.words


@pytest.mark.parametrize("line", ["--no-such", "-c 512 --no-such 3", "-ngl=99", "--ctx-size=8192"])
def test_a_build_is_asked_of_what_the_tables_lack(line: str, server: str) -> None:
    """b11669: "error: invalid argument: --no-such", and of each other as it is written."""
    asked = Loader(args=tuple(line.split()))
    (found,) = options.findings(HostProgram((server,)), asked, sure=True)
    assert found.level is Level.FAIL
    assert "invalid argument: -" in found.words
    (found,) = options.findings(HostProgram((server,)), asked, sure=False)
    assert found.level is Level.UNKNOWN


def test_an_option_that_the_tables_lack_and_the_build_has_is_no_refusal() -> None:
    """It may take a value, of which the build is not told."""
    build = Build()
    asked = Loader(args=("--newer", "3", "--newest", "-c", "512"))
    assert options.findings(build, asked, sure=True) == []
    assert build.started == [("-c", "512"), ("--newer",), ("--newest",)]
    missing = 'error while handling argument "--newer": expected value for argument'
    build = Build(says=missing)
    assert options.findings(build, Loader(args=("--newer", "3")), sure=True) == []
    assert options.findings(Build(trouble="silent"), asked, sure=True) == []


def test_a_file_that_is_not_here_is_not_known_to_be_there(tmp_path: Path) -> None:
    line = ("--slot-save-path", f"{tmp_path}/slots", "--chat-template-file", "relative")
    (found,) = not_there(Loader(args=line), Format.GGUF)
    assert (found.level, f"{tmp_path}/slots" in found.words) == (Level.UNKNOWN, True)
    assert not_there(Loader(args=line, inside=True), Format.GGUF) == []
    assert not_there(Loader(args=line, own=True, served=True), Format.GGUF) == []
    assert not_there(Loader(args=line, own=True), Format.GGUF) == [found]
    (tmp_path / "slots").mkdir()
    assert not_there(Loader(args=line), Format.GGUF) == []
    (found,) = not_there(Loader(engine="vllm", args=("--ssl-keyfile=/no/k",)), Format.SAFETENSORS)
    assert "/no/k (--ssl-keyfile)" in found.words


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--grammar-file", "root ::= (", "grammar"), ("--grammar-file", " ", ""),
        ("--json-schema-file", "{", "no JSON"), ("-jf", "[]", "no JSON object"),
        ("-jf", '{"type": "nosuch"}', "grammar of it"), ("-jf", "{}", ""),
        ("--chat-template-file", "{% if", "no template"),
        ("--chat-template-file", "{{ messages }}", ""), ("--lora", "PK", "no GGUF"),
        ("--mmproj", "", "no GGUF"), ("-md", "GGUF", ""), ("--api-key-file", "x", ""),
    ],
)  # fmt: skip
def test_a_file_that_is_no_good_is_named(option: str, text: str, why: str, tmp_path: Path) -> None:
    """What llama-server b11669 ends with, or its like; each was passed over once it was there."""
    path = tmp_path / "it"
    path.write_text(text)
    found = not_there(Loader(args=(option, str(path))), Format.GGUF)
    assert [one.level for one in found] == ([Level.UNKNOWN] if why else [])
    assert all(why in one.words for one in found)


@pytest.mark.parametrize("words", ["--host 127.0.0.1,::1", "--host a,b"])
def test_a_server_listens_at_one_address(words: str) -> None:
    """llama-server b11669: "exiting due to HTTP server error"."""
    for plan in (llama_plan, ik_plan, vllm_plan, sglang_plan):
        assert any("one address" in one for one in plan(words.split()).refused)


@pytest.mark.parametrize("words", ["--threads 100000", "-tb 5000"])
def test_more_threads_than_can_be_started_are_named(words: str) -> None:
    """llama-server b11669 ends with a segmentation fault; with 1,000 it serves."""
    for plan in (llama_plan, ik_plan):
        assert any("threads" in one for one in plan(words.split()).problems)
        assert not plan(["-t", "1000"]).problems


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_an_address_of_another_machine_is_not_known_to_be_there(host: str) -> None:
    (found,) = not_there(Loader(args=("--host", host)), Format.GGUF)
    assert (found.level, host in found.words) == (Level.UNKNOWN, True)
    assert not_there(Loader(args=("--host", host), inside=True), Format.GGUF) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost", "/run/x.sock"])
def test_an_address_of_this_machine_is_no_reason(host: str) -> None:
    assert not_there(Loader(args=("--host", host)), Format.GGUF) == []


@pytest.fixture(scope="module")
def server() -> str:
    from tests.testbed import fit_params
    from tests.testbed.cache import Unavailable

    try:
        return fit_params.ensure("llama-server")
    except Unavailable as error:
        lacking(error.reason)


def test_a_name_to_listen_at_that_this_machine_cannot_look_up_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(name: str, *_: object, **more: object) -> list[tuple[object, ...]]:
        if name != "here.test":
            raise OSError(name)
        return [(2, 1, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr("socket.getaddrinfo", look)

    def named(host: str) -> str:
        return "".join(f.words for f in not_there(Loader(args=("--host", host)), Format.GGUF))

    assert "no address nosuchhost.invalid" in named("nosuchhost.invalid")
    for host in ("here.test", "localhost", "LOCALHOST", "0.0.0.0", "::", "/run/a.sock", "a.sock"):
        assert named(host) == "", host


LISTED = "0.1 I system_info: n_threads = 8 | CUDA : ARCHS = 750 | USE_GRAPHS = 1 |{} CPU : AVX = 1"


@pytest.mark.parametrize(
    ("says", "number", "told"),
    [
        (LISTED.format(" FA_ALL_QUANTS = 1 |"), "build 10825", BuildFacts(10825, pairs=True)),
        (LISTED.format(""), "build 10825", BuildFacts(10825, pairs=False)),
        ("system_info: n_threads = 8 | CPU : AVX = 1 |", "build 11669", BuildFacts(11669)),
        (LISTED.format(""), "build 1", BuildFacts(None, pairs=False)),
    ],
)
def test_a_build_tells_its_number_and_its_kernels(
    says: str, number: str, told: BuildFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spiritbuun/buun-llama-cpp#59 has a start that lists FA_ALL_QUANTS, llama.cpp#24681 one that
    does not."""
    monkeypatch.setattr(Build, "build", lambda _: number)
    assert options.about(Build(says=says)) == told
    assert Asking(lambda: Build(says=says), sure=True).about == told


def test_only_the_build_that_would_serve_may_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Build, "build", lambda _: "build 10825")
    lacks, has = Build(says=LISTED.format("")), Build(says=LISTED.format(" FA_ALL_QUANTS = 1 |"))
    assert Asking(lambda: lacks, sure=False).about == BuildFacts()
    assert Asking(lambda: has, sure=False).about == BuildFacts(pairs=True)
    assert Asking(lambda: None, sure=True).about is None
    assert options.about(Build(trouble="silent")) == BuildFacts(10825)


def test_the_real_build_tells_its_number(server: str) -> None:
    """b11669 has kernels for every pair of types, and no buffers for rows."""
    found = options.about(HostProgram((server,)))
    assert (found.number, found.takes_pairs, found.splits_rows) == (11669, True, False)
