"""What two witnesses come to, and what is remembered of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from console.checks.preflight.architecture import support
from console.checks.preflight.architecture.check import locate
from console.checks.preflight.architecture.names import Presence, Said, Scan
from console.checks.preflight.architecture.support import Identity, Witness, accepts
from console.common.errors import Level, ServiceError

YES, NO = Said(True, "key not found"), Said(False, "unknown model architecture: 'x'")


@dataclass
class Build:
    """A build whose two witnesses say what a test wants."""

    said: Mapping[str, Said] = field(default_factory=dict)
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
    ) -> Mapping[str, Said]:
        self.asked += architectures
        if self.trouble == "disk full":
            raise OSError(28, self.trouble)
        if self.trouble:
            raise ServiceError(self.trouble)
        return {name: self.said.get(name, Said(None)) for name in architectures}

    def scan(self, name: str) -> Scan | None:
        return Scan("libllama.so", self.presence) if self.presence else None

    def similar(self, name: str) -> tuple[str, ...]:
        return self.like


def test_both_witnesses_agree() -> None:
    verdict = accepts("x", Build({"x": YES}))
    assert (verdict.accepted, verdict.agree, verdict.witness) == (True, True, Witness.LOADER)
    assert verdict.finding().level is Level.OK
    assert "build 1" in verdict.words
    assert verdict.hint == ""


def test_a_refusal_cites_the_lesson_and_names_what_the_loader_confirms() -> None:
    build = Build({"x": NO, "x2": YES, "x3": NO}, Presence.ABSENT, ("x2", "x3", "not a name"))
    verdict = accepts("x", build)
    assert (verdict.accepted, verdict.knows) == (False, ("x2",))
    assert build.asked == ["x", "x2", "x3"]
    found = verdict.finding()
    assert (found.level, found.lessons) == (Level.FAIL, ("F-008",))
    assert "x2" in found.hint


@pytest.mark.parametrize(
    ("said", "presence", "agree", "level"),
    [
        (YES, Presence.TAIL, True, Level.OK),
        (YES, Presence.ABSENT, False, Level.WARN),
        (YES, None, None, Level.OK),
        (NO, Presence.WHOLE, False, Level.FAIL),
        (NO, Presence.TAIL, None, Level.FAIL),
        (NO, Presence.ABSENT, True, Level.FAIL),
    ],
)
def test_disagreement_is_said_and_the_loader_decides(
    said: Said, presence: Presence | None, agree: bool | None, level: Level
) -> None:
    verdict = accepts("x", Build({"x": said}, presence))
    assert (verdict.accepted, verdict.agree) == (said.accepted, agree)
    assert verdict.finding().level is level
    assert ("Yet" in verdict.second) == (agree is False)


def test_without_the_loader_only_an_absent_name_is_refused() -> None:
    absent = accepts("x", Build(trouble="it hangs", presence=Presence.ABSENT))
    assert (absent.accepted, absent.witness) == (False, Witness.LIBRARY)
    assert "it hangs" in absent.words
    assert "disk full" in accepts("x", Build(trouble="disk full")).words
    there = accepts("x", Build(presence=Presence.WHOLE))
    assert (there.accepted, there.witness) == (None, Witness.LIBRARY)
    assert there.finding().level is Level.UNKNOWN


def test_the_package_is_a_fallback_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = accepts("llama", Build(trouble="no engine", presence=None))
    assert (listed.accepted, listed.witness) == (None, Witness.PACKAGE)
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


def test_a_memory_cannot_bring_control_bytes(store: Path) -> None:
    accepts("x", Build({"x": YES}))
    (path,) = store.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "words": "\x1b[31mred"}))
    found = support.recall("sha256:1", "x")
    assert found is not None
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
        ) -> Mapping[str, Said]:
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
        assert locate(meant, ()) == (first, ())
    Path(first).unlink()
    assert locate(f"./{second}", ()) == (second, ("the repository lacks shard 1 of 2",))
