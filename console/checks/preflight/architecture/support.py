"""Whether the operator's own build accepts an architecture: asked of that build, then remembered.

The first witness is its loader, given a probe; the second is a scan of its library. The `gguf`
package's list, which lags behind engines, is used only without both. If no witness settles it, the
answer is None.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture.names import (
    MARK,
    NO_BUILD,
    LoaderAnswer,
    Presence,
    Scan,
    is_name,
)
from console.common import paths, record
from console.common.errors import ConsoleError
from console.common.files import write_atomically
from console.common.record import Key, RecordError
from console.common.text import clean, one_line

FORM = 1
"""Version of the stored form: increase it when its meaning changes."""
MAX_BYTES = 64 * 1024
Text = Annotated[str, clean]

DOWNLOADED = ("F-008",)
"""The lesson cited: 342 GB were downloaded, then: unknown model architecture."""
PROJECTOR = "cannot be used as main model"
CONFIRMED = 4
"""How many names like the refused one are confirmed with the loader."""


def keep(verdict: ArchVerdict) -> None:
    """Remember a verdict; if that fails to be written, the build is asked again next time."""
    if not verdict.engine.key:
        return
    path = _path(verdict.engine.key, verdict.architecture)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"form": FORM, **record.plain(verdict)}))


def recall(key: str, architecture: str) -> ArchVerdict | None:
    """The stored verdict of this build on this architecture; None without an intact one."""
    if not key:
        return None
    try:
        verdict = record.read(ArchVerdict, _path(key, architecture), MAX_BYTES, form=FORM)
    except (OSError, RecordError):
        return None
    same = verdict.engine.key == key and verdict.architecture == architecture
    return replace(verdict, remembered=True) if same and verdict.accepted is not None else None


def _path(key: str, architecture: str) -> Path:
    """One small file for each build and architecture. A build's key tells all that its answer
    depends on, so no entry grows stale."""
    name = hashlib.sha256(f"{key}\0{architecture}".encode()).hexdigest()[:40]
    return paths.cache_dir() / "architectures" / f"{name}.json"


class Witness(StrEnum):
    """Who answered: the loader, the library's strings, the `gguf` package, nobody."""

    LOADER = "loader"
    LIBRARY = "library"
    PACKAGE = "gguf package"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which build was asked. `digest` is the image's id, or the sha256 of program and library;
    `build` is the build's own word. Verdicts are kept under `key`, or not at all if it is empty."""

    name: Text
    digest: Text = ""
    build: Text = ""
    key: Text = ""

    @property
    def text(self) -> str:
        short = self.digest.removeprefix("sha256:")[:12]
        more = ", ".join(part for part in (self.build, f"sha256 {short}" if short else "") if part)
        return f"{self.name} ({more})" if more else self.name


class Engine(Protocol):
    """A build that can be asked. Calls are bounded in time; they raise ConsoleError and
    Cancelled."""

    def identity(self) -> Identity:
        """The build's identity, cheaply, without its own word."""

    def build(self) -> str:
        """What the build calls itself; empty if it does not say."""

    def ask(
        self, architectures: Sequence[str], cancelled: threading.Event | None = None
    ) -> Mapping[str, LoaderAnswer]:
        """The loader's answers; a name may be missing."""

    def load(
        self, model: bytes, words: Sequence[str] = (), cancelled: threading.Event | None = None
    ) -> Sequence[str]:
        """The clean lines that its program writes when it is started with a model file of these
        bytes and more words."""

    def scan(self, name: str, mark: bytes = MARK) -> Scan | None:
        """How the name occurs in the library that has `mark`; None if none was found."""

    def similar(self, name: str) -> tuple[str, ...]:
        """Strings of the library that resemble a name."""


@dataclass(frozen=True, slots=True)
class ArchVerdict:
    """What is known of an architecture and a build.

    `loader_line` is the loader's own, `second` what the library says, `agree` whether the two do
    (None: there is no second). `knows` are names that the loader accepts, most similar first.
    """

    architecture: Text
    accepted: bool | None
    witness: Witness
    engine: Identity
    words: Text
    loader_line: Annotated[Text, Key("said")] = ""
    second: Text = ""
    agree: bool | None = None
    knows: tuple[Text, ...] = ()
    lessons: tuple[Text, ...] = ()
    remembered: bool = False

    def finding(self) -> Finding:
        level = {True: Level.OK, False: Level.FAIL, None: Level.UNKNOWN}[self.accepted]
        if self.agree is False and level is Level.OK:
            level = Level.WARN
        words = f"{self.words}. {self.second}" if self.second else self.words
        return Finding(level, f"architecture {self.architecture}", words, self.hint, self.lessons)

    @property
    def hint(self) -> str:
        """What to do next; empty if it is accepted."""
        if self.accepted:
            return ""
        if self.accepted is None:
            return "load any small model of this architecture with the build before downloading"
        if PROJECTOR in self.loader_line:
            return "this file goes beside a model, with --mmproj; name the model itself"
        if self.knows:
            names = ", ".join(self.knows)
            return f"this build knows: {names}; take a file made as one of these, or a newer build"
        return "do not download it: take a build that knows the name first"


def called(build: Engine) -> str:
    """A build's name in a sentence, whether or not it can be read now."""
    try:
        return build.identity().text
    except (ConsoleError, OSError):
        return "the build"


def accepts(
    architecture: str,
    engine: Engine,
    *,
    cancelled: threading.Event | None = None,
) -> ArchVerdict:
    """Whether the build accepts an architecture, from memory if it was asked before. Raises
    Cancelled; any other failure becomes a verdict that reports it."""
    if not is_name(architecture):
        shown, words = one_line(architecture, 60), "is no name a build can know"
        nobody = Identity("no build")
        return ArchVerdict(shown, False, Witness.NOBODY, nobody, f"'{shown}' {words}")
    try:
        identity = engine.identity()
    except (ConsoleError, OSError) as error:
        return _unasked(architecture, Identity("the build"), one_line(str(error)))
    kept = recall(identity.key, architecture)
    if kept is not None:
        return kept
    verdict = _ask_build(architecture, engine, identity, cancelled)
    if verdict.accepted is not None and verdict.witness is Witness.LOADER:
        keep(verdict)
    return verdict


def findings(architecture: str, build: Engine, *, sure: bool) -> list[Finding]:
    """What a build says of an architecture. `sure`: this build loads the file, and not another one
    that the question is about: whatever it does not say is then unknown. Raises Cancelled."""
    verdict = accepts(architecture, build)
    finding = replace(verdict.finding(), title=f"the build, architecture {verdict.architecture}")
    if sure:
        return [finding]
    if verdict.accepted is None:
        return []
    hint = "is this the build that is to load it? `check gguf` asks another one"
    return [finding if verdict.accepted else replace(finding, level=Level.UNKNOWN, hint=hint)]


def _ask_build(
    architecture: str, engine: Engine, identity: Identity, cancelled: threading.Event | None
) -> ArchVerdict:
    answers, build, scan = _in_parallel(
        lambda: _asked_twice(engine, architecture, cancelled),
        engine.build,
        lambda: engine.scan(architecture),
    )
    answer, why = LoaderAnswer(None), ""
    if isinstance(answers, ConsoleError):
        why = str(answers)
    else:
        answer = answers.get(architecture, answer)
        identity = replace(identity, build=build if isinstance(build, str) else "")
    seen = None if isinstance(scan, ConsoleError) else scan
    if answer.accepted is None:
        return _second_best(architecture, identity, why or answer.line, seen)
    words = f"{identity.text} accepts '{architecture}'"
    verdict = ArchVerdict(
        architecture, answer.accepted, Witness.LOADER, identity, words, answer.line,
        *_compared(answer.accepted, seen),
    )  # fmt: skip
    if answer.accepted:
        return verdict
    words = f"{identity.text} refuses '{architecture}': {answer.line}"
    knows = _confirmed(engine, architecture, cancelled)
    return replace(verdict, words=words, knows=knows, lessons=DOWNLOADED)


def _asked_twice(
    engine: Engine, architecture: str, cancelled: threading.Event | None
) -> Mapping[str, LoaderAnswer]:
    """The loader's answer, asked again if the first was neither: llama.cpp logs from another
    thread, so a process that gives up may end before it has written the reason."""
    answers = engine.ask((architecture,), cancelled)
    if answers.get(architecture, LoaderAnswer(None)).accepted is None:
        answers = engine.ask((architecture,), cancelled)
    return answers


def _in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """What each call returns, or the ConsoleError it raised; all run at the same time."""
    pool = ThreadPoolExecutor(len(calls), "oracle")
    try:
        futures = [pool.submit(call) for call in calls]
        outcomes = []
        for future in futures:
            try:
                outcomes.append(future.result())
            except ConsoleError as error:
                outcomes.append(error)
            except OSError as error:  # a full disk, a file that cannot be read to its end
                outcomes.append(ConsoleError(one_line(str(error))))
        return outcomes
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _compared(accepted: bool, scan: Scan | None) -> tuple[str, bool | None]:
    """What the second witness says beside the first, and whether they agree.

    A name in the tail of another string proves nothing either way.
    """
    if scan is None:
        return "Its library was not found, so the name was not looked for there", None
    if scan.presence is Presence.TAIL and not accepted:
        return "", None
    agree = accepted == (scan.presence is not Presence.ABSENT)
    if agree:
        return "", True
    if accepted:
        return f"Yet the name is not in {scan.path}: is that the library it uses?", False
    words = "as the name of a template or tokenizer, or listed but not built; the loader decides"
    return f"Yet {scan.path} contains the name, {words}", False


def _confirmed(
    engine: Engine, architecture: str, cancelled: threading.Event | None
) -> tuple[str, ...]:
    """Names like the refused one that the loader accepts."""
    try:
        names = [name for name in engine.similar(architecture) if is_name(name)][:CONFIRMED]
        answers = engine.ask(names, cancelled) if names else {}
    except (ConsoleError, OSError):
        return ()
    return tuple(name for name in names if answers.get(name, LoaderAnswer(None)).accepted)


def _second_best(architecture: str, identity: Identity, why: str, scan: Scan | None) -> ArchVerdict:
    """Without the loader: an absent name is refused, anything else is unknown."""
    reason = f"the loader did not say ({why})" if why else "the loader did not say"
    if scan is None:
        return _unasked(architecture, identity, why)
    if scan.presence is Presence.ABSENT:
        words = f"{scan.path} of {identity.text} does not hold '{architecture}'; {reason}"
        return ArchVerdict(
            architecture, False, Witness.LIBRARY, identity, words, lessons=DOWNLOADED
        )
    words = f"{scan.path} of {identity.text} holds '{architecture}', which is no proof; {reason}"
    return ArchVerdict(architecture, None, Witness.LIBRARY, identity, words)


def _unasked(architecture: str, identity: Identity, why: str) -> ArchVerdict:
    """Without both witnesses: the package's list, labelled as such."""
    reason = f"{identity.text} could not be asked" + (f" ({why})" if why else "")
    reason = why if NO_BUILD in why else reason
    listed = package_list()
    if listed is None:
        return ArchVerdict(architecture, None, Witness.NOBODY, identity, reason)
    version, names = listed
    known = "lists it" if architecture in names else "does not list it"
    words = f"{reason}; fallback, not your build: the gguf package {version} {known}"
    return ArchVerdict(architecture, None, Witness.PACKAGE, identity, words)


def package_list() -> tuple[str, frozenset[str]] | None:
    """Version and architectures of the `gguf` package; None if it is not installed."""
    try:
        from importlib.metadata import version

        from gguf.constants import MODEL_ARCH_NAMES
    except ImportError:
        return None
    return version("gguf"), frozenset(MODEL_ARCH_NAMES.values())
