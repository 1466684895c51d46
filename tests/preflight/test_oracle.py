"""What two witnesses come to, and what is remembered of it; and builds that are on this machine."""

import json
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import on_host, support
from console.checks.preflight.architecture.check import locate
from console.checks.preflight.architecture.names import MARK, LoaderAnswer, Presence, Scan
from console.checks.preflight.architecture.on_host import HostProgram, demo_engine
from console.checks.preflight.architecture.support import Identity, Witness, accepts
from console.common.errors import ServiceError
from tests.ports import free_port
from tests.sizing.loading import logged
from tests.testbed.plugin import lacking
from tests.waiting import some
from tests.wrong_files import wrong_files

YES, NO = (
    LoaderAnswer(True, "key not found"),
    LoaderAnswer(False, "unknown model architecture: 'x'"),
)


@dataclass
class Build:
    """A build whose two witnesses say what a test wants."""

    said: Mapping[str, LoaderAnswer] = field(default_factory=dict)
    presence: Presence | None = Presence.WHOLE
    like: tuple[str, ...] = ()
    trouble: str = ""
    key: str = "sha256:1"
    asked: list[str] = field(default_factory=list)

    def identity(self) -> Identity:
        return Identity("llama-server", self.key, key=self.key)

    def build(self) -> str:
        return "build 1"

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> Mapping[str, LoaderAnswer]:
        self.asked += architectures
        if self.trouble == "disk full":
            raise OSError(28, self.trouble)
        if self.trouble:
            raise ServiceError(self.trouble)
        return {name: self.said.get(name, LoaderAnswer(None)) for name in architectures}

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None
    ) -> Sequence[str]:
        return ()

    def scan(self, name: str, mark: bytes = MARK) -> Scan | None:
        return Scan("libllama.so", self.presence) if self.presence else None

    def similar(self, name: str) -> tuple[str, ...]:
        return self.like


def test_a_refusal_cites_the_lesson_and_names_what_the_loader_confirms() -> None:
    build = Build({"x": NO, "x2": YES, "x3": NO}, Presence.ABSENT, ("x2", "x3", "not a name"))
    verdict = accepts("x", build)
    assert (verdict.accepted, verdict.knows) == (False, ("x2",))
    assert build.asked == ["x", "x2", "x3"]
    found = verdict.finding()
    assert (found.level, found.lessons) == (Level.FAIL, ("F-008",))
    assert "x2" in found.hint


def test_without_even_a_package_nobody_is_a_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "package_list", lambda: None)
    nobody = accepts("llama", Build(presence=None))
    assert (nobody.accepted, nobody.witness) == (None, Witness.NOBODY)


@pytest.mark.parametrize("name", ["", "a b", "x" * 70, "\x1b]0;x\x07[red]"])
def test_what_is_no_name_is_refused_unasked(name: str) -> None:
    build = Build()
    verdict = accepts(name, build)
    assert verdict.accepted is False
    assert build.asked == []
    assert verdict.finding().text.isprintable()


def test_a_verdict_is_remembered_by_build_and_name(store: Path) -> None:
    build = Build({"x": YES, "y": NO}, like=("x",))
    first = accepts("x", build)
    again = accepts("x", build)
    assert (first.remembered, again.remembered) == (False, True)
    assert (again.accepted, again.words, again.engine) == (True, first.words, first.engine)
    refused = accepts("y", build)
    assert accepts("y", build).finding() == refused.finding()
    assert build.asked == ["x", "y", "x"]
    assert accepts("x", Build({"x": NO}, key="sha256:2")).accepted is False
    assert len(list(store.iterdir())) == 3


def test_what_is_not_known_is_not_remembered(store: Path) -> None:
    accepts("x", Build(presence=None))
    accepts("x", Build({"x": YES}, key=""))
    assert not store.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:30],
        lambda text: "",
        lambda text: "[" * 30_000,
        lambda text: text.replace("true", "1", 1),
        lambda text: json.dumps({**json.loads(text), "accepted": None}),
        lambda text: json.dumps({**json.loads(text), "knows": [1]}),
        lambda text: json.dumps({**json.loads(text), "form": 0}),
        lambda text: json.dumps({**json.loads(text), "architecture": "other"}),
        lambda text: json.dumps({**json.loads(text), "engine": "?"}),
    ],
)
def test_a_damaged_memory_is_none(store: Path, damage: object) -> None:
    build = Build({"x": YES})
    accepts("x", build)
    (path,) = store.iterdir()
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    assert accepts("x", build).remembered is False
    assert accepts("x", build).remembered is True
    assert build.asked == ["x", "x"]


def test_a_memory_with_one_wrong_value_is_none(store: Path) -> None:
    accepts("x", Build({"x": YES}))
    (path,) = store.iterdir()
    for key, text in wrong_files(path.read_text()):
        path.write_text(text)
        assert support.recall("sha256:1", "x") is None, key


def test_a_memory_cannot_bring_control_bytes(store: Path) -> None:
    accepts("x", Build({"x": YES}))
    (path,) = store.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "words": "\x1b[31mred"}))
    found = some(support.recall("sha256:1", "x"))
    assert found.words == "red"


def test_a_store_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    build = Build({"x": YES})
    for _ in range(2):
        assert accepts("x", build).accepted is True
    assert build.asked == ["x", "x"]


def test_a_loader_that_said_nothing_is_asked_once_more() -> None:
    """A program that gives up may end before its log has said why."""

    class Late(Build):
        def ask(
            self, architectures: Sequence[str], cancelled: threading.Event | None = None
        ) -> Mapping[str, LoaderAnswer]:
            answers = super().ask(architectures, cancelled)
            return answers if self.asked.count(architectures[0]) > 1 else {}

    late = Late({"deepseek2": YES})
    assert accepts("deepseek2", late).accepted is True
    assert late.asked == ["deepseek2", "deepseek2"]


def test_a_folder_named_like_a_repository_is_meant_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org/name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    first, second = (f"org/name/m-0000{number}-of-00002.gguf" for number in (1, 2))
    for path in (first, second):
        Path(path).write_bytes(b"GGUF")
    for meant in ("./org/name", f"./{second}"):
        assert locate(meant, ()) == ((first, second), ())
    Path(first).unlink()
    assert locate(f"./{second}", ()) == ((second,), ("the repository lacks shard 1 of 2",))


DEMO = (
    sys.executable, "-P", "-m", "console.rehearsal.demo.engine", "--model", "x.gguf", "--port", "1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time, and a port that nobody else takes meanwhile."""
    monkeypatch.setattr(on_host, "ASK_S", 120.0)
    monkeypatch.setattr(on_host, "_free_port", free_port)


@pytest.fixture(scope="module")
def demo() -> HostProgram:
    found = demo_engine(DEMO)
    if found is None:
        lacking("no real part: xllamacpp is not installed")
    return found


@pytest.fixture(scope="module")
def loaded(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Of each architecture, whether this build loaded a whole model of it."""
    folder, how = tmp_path_factory.mktemp("loaded"), {"n_ctx": 256, "n_parallel": 1}
    logs = logged(folder, [(path, how) for path in models.values()])
    return {name: "all slots are idle" in log for name, log in zip(models, logs, strict=True)}


@pytest.mark.alone
def test_the_loader_says_what_happens_to_whole_models(
    demo: HostProgram, loaded: dict[str, bool]
) -> None:
    answers = dict(demo.ask(list(loaded)))
    late = [name for name, said in answers.items() if said.accepted is None]
    answers |= demo.ask(late) if late else {}  # a machine at work lets one run out of its time
    assert {name: said.accepted for name, said in answers.items()} == loaded
    assert sum(loaded.values()) >= 8
    assert sum(not one for one in loaded.values()) >= 4
    assert loaded["deepseek2"]
    assert not loaded["deepseek3_2"]


@pytest.mark.alone
def test_a_name_that_is_absent_from_the_library_never_loads(
    demo: HostProgram, loaded: dict[str, bool]
) -> None:
    """The second witness: it may hold names that do not load, never lack one that does."""
    for name in ("llama", "qwen3moe", "deepseek2", "deepseek32", "gemma3", "mamba"):
        scan = some(demo.scan(name))
        assert loaded[name]
        assert scan.presence is not Presence.ABSENT, name
    missing = some(demo.scan("deepseek3_2"))
    assert missing.presence is Presence.ABSENT


def test_the_lesson_before_the_download(demo: HostProgram) -> None:
    verdict = accepts("deepseek3_2", demo)
    assert (verdict.accepted, verdict.witness, verdict.agree) == (False, Witness.LOADER, True)
    assert "'deepseek3_2'" in verdict.words
    assert verdict.lessons == ("F-008",)
    assert verdict.knows[0] == "deepseek32", "the most alike first"
    assert "deepseek2" in verdict.knows
    assert accepts("deepseek3_2", demo).remembered


def test_a_listed_architecture_that_is_not_built_is_refused(demo: HostProgram) -> None:
    verdict = accepts("gptj", demo)
    assert (verdict.accepted, verdict.agree) == (False, False)
    assert "unsupported" in verdict.loader_line
    assert verdict.second


def test_a_process_service_is_asked_as_it_is_run(demo: HostProgram) -> None:
    verdict = accepts("deepseek2", demo)
    assert (verdict.accepted, verdict.agree) == (True, True)
    assert verdict.engine.digest
    assert verdict.engine.name.endswith("with xllamacpp.abi3.so")


def test_a_server_program_is_called_with_nothing_but_the_model(
    tmp_path: Path, demo: HostProgram
) -> None:
    """A real loader behind a program of the usual name, which refuses what it does not know."""
    script = tmp_path / "llama-server"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "version: 6512 (0cb51d1)"; exit 0; }\n'
        '[ "$1 $3 $5" = "-m --host --port" ] && [ $# = 6 ] || { echo "error: $*"; exit 1; }\n'
        f'exec {sys.executable} -P -m console.rehearsal.demo.engine --model "$2" --port "$6"\n'
    )
    script.chmod(stat.S_IRWXU)
    engine = HostProgram([str(script), "-m", "/models/x.gguf", "--device", "CUDA0"])
    verdict = accepts("deepseek32", engine)
    assert verdict.accepted is True
    assert verdict.engine.build == "build 6512"
    assert verdict.second
    assert verdict.engine.key == "", "its library may change: nothing is remembered"
    assert accepts("deepseek3_2", engine).accepted is False


def _linked(folder: Path) -> HostProgram:
    """A program that ends as the dynamic loader does where libcudart is gone, and as llama.cpp does
    where no backend is left."""
    program = folder / "llama-server"
    program.write_text(
        "#!/bin/sh\ncd $(dirname $0)\n[ -e libcudart.so.12 ] || { echo 'llama-server: error while "
        "loading shared libraries: libcudart.so.12: cannot open shared object file' >&2; exit 127; "
        '}\n[ "$1" = --version ] && { echo "version: 6512 (0cb51d1)"; exit 0; }\n'
        "[ -e libggml-cpu.so ] || { echo 'error: no backends are loaded' >&2; exit 1; }\n"
        'echo "error loading model: error loading model hyperparameters: key not found in model: '
        'llama.context_length"; exit 1\n'
    )
    program.chmod(stat.S_IRWXU)
    (folder / "libllama.so").write_bytes(b"\0" + MARK + b"llama\0")
    for name in ("libcudart.so.12", "libggml-cpu.so"):
        (folder / name).touch()
    return HostProgram([str(program), "-m", "/models/x.gguf"])


@pytest.mark.parametrize("lost", ["libcudart.so.12", "libggml-cpu.so"])
def test_a_build_that_has_lost_a_library_is_asked_again(
    tmp_path: Path, store: Path, lost: str
) -> None:
    assert accepts("llama", _linked(tmp_path)).accepted is True
    assert accepts("llama", HostProgram([str(tmp_path / "llama-server")])).remembered
    (tmp_path / lost).unlink()
    after = accepts("llama", HostProgram([str(tmp_path / "llama-server")]))
    assert (after.accepted, after.remembered) == (None, False)


def test_a_program_that_does_not_start_leaves_its_library_as_a_witness(tmp_path: Path) -> None:
    engine = _linked(tmp_path)
    (tmp_path / "llama-server").write_bytes(b"\x7fELF\0libllama.so\0")
    assert accepts("qwen9", engine).witness is Witness.LIBRARY


def test_programs_that_cannot_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_host, "ASK_S", 0.2)
    never = tmp_path / "llama-server"
    never.write_text("#!/bin/sh\nexec sleep 100\n")
    never.chmod(stat.S_IRWXU)
    for argv in ([str(never)], ["/nowhere/llama-server"], ["sleep", "0"]):
        verdict = accepts("llama", HostProgram(argv))
        assert (verdict.accepted, verdict.witness) == (None, Witness.PACKAGE)
