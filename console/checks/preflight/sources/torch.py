"""PyTorch in an image build: its version, the CUDA it was built with, and its C++ ABI, wherever the
Dockerfile and the sources name them. Extensions work with the one they were compiled against."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from console.checks.lint import dockerfile, vocabulary
from console.checks.lint.unit import Command, Unit
from console.checks.preflight import Finding, Level
from console.checks.preflight.gpu import numbers
from console.checks.preflight.image import ABI

TITLE = "PyTorch and CUDA"
CUDA = ("F-012",)
Pair = tuple[int, int]
_BASE_TORCH = re.compile(r"pytorch/pytorch:(\d+(?:\.\d+){1,2})")
_INDEX = re.compile(r"/whl/(?:nightly/|test/)?(cu(\d{2})(\d)|cpu|rocm[\d.]*)\b")
_TORCH = re.compile(r"torch(?:\[[^\]]*\])?\s*(?:(==|~=|>=|<=|<|>|!=)\s*([\w.*+!]+))?.*")
_LOCAL = re.compile(r"\+cu(\d{2})(\d)")
_WHEEL = re.compile(r"(?:^|[/\\])([A-Za-z0-9_.]+)-([^-/]+)-(?:cp3(\d+)|py3)[-\w.]*\.whl", re.ASCII)
_FOR_CUDA = re.compile(r"cu(\d{2})(\d)?(?=torch|\D|$)")
_FOR_TORCH = re.compile(r"(?:torch|pt)(\d+)\.?(\d+)")
_PYTHON = re.compile(r"python3\.(\d+)")


@dataclass(frozen=True, slots=True)
class Torch:
    """A PyTorch that the build installs or starts from; `kind` is the index's word (cu128, cpu)."""

    version: str
    cuda: Pair | None
    kind: str
    line: int
    at: int = -1
    """Its place among the commands; -1 for the base image's."""
    sure: bool = True
    """Whether it is installed on every way through the script."""

    @property
    def words(self) -> str:
        return f"PyTorch {self.version or '(newest)'}{f' for {self.kind}' if self.kind else ''}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A part of the sources that a command compiles, what it requires of PyTorch at run time and
    for its build, and whether pip builds it in an environment of its own."""

    command: Command
    requires: Sequence[tuple[str, str]] = ()
    """(requirement, where it stands)."""
    build_requires: Sequence[tuple[str, str]] = ()
    isolated: bool = False


def findings(
    unit: Unit, scope: str, compiled: Sequence[Compiled], name: str,
    listed: Callable[[Command], Sequence[str]] = lambda _: (),
) -> Iterator[Finding]:  # fmt: skip
    """Whatever does not agree in one stage; `name` is the Dockerfile's, for places. `listed`: what
    the files say of PyTorch that a command gives to pip."""
    commands = list(unit.within(scope))
    values = unit.values
    base = _base(unit, scope)
    there = [*([base[1]] if base[1] else []), *_installed(commands, values, listed)]
    orders = {id(command): at for at, command in enumerate(commands)}
    builds = [(orders[id(c.command)], c) for c in compiled if id(c.command) in orders]
    yield from _with_base(base[0], there, builds, name)
    yield from _replaced(there, builds, name)
    for at, part in builds:
        before = [torch for torch in there if torch.at < at]
        if before:
            yield from _required(before[-1], part, name)
    yield from _wheels(commands, values, there, base[0], name)


def _base(unit: Unit, scope: str) -> tuple[Pair | None, Torch | None]:
    """The base image's CUDA and PyTorch, as its name says."""
    stage = unit.stage(scope)
    ref = stage.base if stage else ""
    cuda_match, torch = vocabulary.CUDA.search(ref), _BASE_TORCH.search(ref)
    cuda = (int(cuda_match[1]), int(cuda_match[2])) if cuda_match else None
    if torch is None or stage is None:
        return cuda, None
    return cuda, Torch(torch[1], cuda, _kind(cuda), stage.place.line)


def _kind(cuda: Pair | None) -> str:
    return f"cu{cuda[0]}{cuda[1]}" if cuda else ""


def _installed(
    commands: Sequence[Command], values: Mapping[str, str],
    listed: Callable[[Command], Sequence[str]],
) -> Iterator[Torch]:  # fmt: skip
    for at, command in enumerate(commands):
        pips = [(dockerfile.expanded(word.text, dict(values)), word.place.line)
                for word in vocabulary.pip_words(command)]  # fmt: skip
        pins = (text.partition(";")[0].strip() for text in listed(command))
        pips += [
            (pin, command.place.line) for pin in pins if re.fullmatch(r"torch\s*==\s*\S+", pin)
        ]
        for text, line in pips:
            match = _TORCH.fullmatch(text)
            if match is None or (match[1] is None and len(text) > len("torch")):
                continue
            version = match[2] or "" if match[1] == "==" else ""
            local, index = _LOCAL.search(version), _index(command, values)
            cuda = (int(index[2]), int(index[3])) if index and index[2] else None
            cuda = (int(local[1]), int(local[2])) if local else cuda
            kind = _kind(cuda) or (index[1] if index else "")
            if command.branched:  # another arm may install another one
                yield Torch("", None, "", line, at, sure=False)
            else:
                yield Torch(version.partition("+")[0], cuda, kind, line, at)


def _index(command: Command, values: Mapping[str, str]) -> re.Match[str] | None:
    """The index of wheels that a pip command names, on its line or in a variable."""
    given = [v for v, _ in command.options("--index-url", "-i", "--extra-index-url", "-f")]
    given += [values.get("PIP_INDEX_URL", ""), values.get("PIP_EXTRA_INDEX_URL", "")]
    matches = (_INDEX.search(dockerfile.expanded(url, dict(values))) for url in given)
    return next((match for match in matches if match), None)


def _with_base(
    cuda: Pair | None, there: Sequence[Torch], builds: Sequence[tuple[int, Compiled]], name: str
) -> Iterator[Finding]:
    """The toolkit that compiles against the CUDA that PyTorch was built with."""
    for torch in there:
        after = [part for at, part in builds if at > torch.at]
        if cuda is None or not after or torch.at < 0:
            continue
        place = f"{name}:{torch.line}"
        if torch.kind == "cpu":
            words = f"{torch.words} has no CUDA, and {_quoted(after[0])} is compiled against it"
            hint = f"an index for CUDA, like https://download.pytorch.org/whl/{_kind(cuda)}"
            yield Finding(Level.FAIL, TITLE, words, hint, CUDA, place=place)
        elif torch.cuda is not None and torch.cuda != cuda:
            grave = Level.FAIL if torch.cuda[0] != cuda[0] else Level.WARN
            words = (
                f"{torch.words}, and the base image compiles with CUDA {cuda[0]}.{cuda[1]}: "
                + ("PyTorch refuses to build an extension with another major version"
                   if grave is Level.FAIL else "minor versions differ, which often works")
            )  # fmt: skip
            hint = f"the same CUDA in FROM and in the index: {_kind(cuda)} or {_kind(torch.cuda)}"
            yield Finding(grave, TITLE, words, hint, (*CUDA, *ABI), place=place)


def _quoted(part: Compiled) -> str:
    return f"`{part.command.line[:60]}`"


def _replaced(
    there: Sequence[Torch], builds: Sequence[tuple[int, Compiled]], name: str
) -> Iterator[Finding]:
    """A second PyTorch, after something was compiled against the first."""
    for first, second in pairwise(there):
        other = second.kind and second.kind != first.kind
        is_replacement = second.version and (
            second.version != first.version or other
        )  # else pip keeps it
        between = [part for at, part in builds if first.at < at < second.at]
        if is_replacement and (between or first.at >= 0):
            words = f"{second.words} replaces {first.words} (line {first.line})"
            words += f", against which {_quoted(between[0])} was compiled" if between else ""
            level = Level.FAIL if between else Level.WARN
            hint = "install one PyTorch, before everything that is compiled"
            yield Finding(level, TITLE, words, hint, ABI, place=f"{name}:{second.line}")


def _required(there: Torch, part: Compiled, name: str) -> Iterator[Finding]:
    """What the sources require against what is installed when they are built."""
    for text, place in part.requires:
        if there.version and allows(text, there.version) is False:
            words = f"the sources require {text}: pip replaces {there.words} (line {there.line})"
            hint = "the version that the sources were made for, in the Dockerfile too"
            yield Finding(Level.FAIL, TITLE, words, hint, ABI, place=place)
    if not part.isolated:
        return
    line = part.command.place.line
    for text, place in part.build_requires:
        fits = allows(text, there.version) if there.version else None
        pinned = "==" in text
        if fits and pinned:
            continue
        level = Level.FAIL if fits is False else Level.WARN
        words = (
            f"pip builds it in an environment of its own, with {text} ({place}): compiled against "
            f"another PyTorch than {there.words}"
        )
        hint = "pip install --no-build-isolation, with what the build needs installed before"
        yield Finding(level, TITLE, words, hint, ABI, place=f"{name}:{line}")


def allows(requirement: str, version: str) -> bool | None:
    """Whether a requirement on torch (`torch>=2.3,<2.5`) allows a version; None if not known."""
    clauses = requirement.partition(";")[0].strip()
    clauses = re.sub(r"^torch(\[[^\]]*\])?", "", clauses).strip(" ()")
    mine = numbers(version)
    if not mine or not clauses:
        return None
    verdict: bool | None = True
    for clause in clauses.split(","):
        match = re.fullmatch(r"\s*(===?|~=|>=|<=|<|>|!=)\s*([\w.*+!]+)\s*", clause)
        if match is None or not (wanted := numbers(match[2].partition("+")[0])):
            return None
        if not _holds(mine, match[1], wanted, match[2].endswith(".*")):
            verdict = False
    return verdict


def _holds(mine: tuple[int, ...], sign: str, wanted: tuple[int, ...], any_patch: bool) -> bool:
    size = len(wanted) if any_patch else max(len(mine), len(wanted))
    left = (*mine, *[0] * (size - len(mine)))[:size]
    right = (*wanted, *[0] * (size - len(wanted)))
    if sign in ("==", "==="):
        return left == right
    if sign == "~=":
        return left >= right and mine[: len(wanted) - 1] == wanted[:-1]
    return {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right,
            "!=": left != right}[sign]  # fmt: skip


def _wheels(
    commands: Sequence[Command], values: Mapping[str, str], there: Sequence[Torch],
    cuda: Pair | None, name: str,
) -> Iterator[Finding]:  # fmt: skip
    """Names of wheels say for which PyTorch, CUDA, Python and ABI they were compiled."""
    pythons = {
        int(python_match[1]) for stage_command in commands for word in stage_command.words
        for python_match in [_PYTHON.match(word.text)] if python_match
    }  # fmt: skip
    for at, command in enumerate(commands):
        torch = next(
            (candidate for candidate in reversed(there) if candidate.at <= at),
            there[0] if there else None,
        )
        if command.branched:
            continue  # it may be the wheel for just this way
        for word in vocabulary.pip_words(command):
            text = dockerfile.expanded(word.text, dict(values)).replace("%2B", "+")
            wheel_match = _WHEEL.search(text.partition("#")[0])
            if wheel_match is None:
                continue
            of_base = cuda if torch is None or (torch.sure and not torch.kind) else None
            wrong = list(
                _wheel(wheel_match, torch, torch.cuda if torch and torch.cuda else of_base)
            )
            if wheel_match[3] and pythons and int(wheel_match[3]) not in pythons:
                wrong.append(f"Python 3.{wheel_match[3]}, not 3.{max(pythons)}")
            if wrong:
                words = f"the wheel {wheel_match[1]} was compiled for {'; '.join(wrong)}"
                hint = "the wheel for what is installed, or compile it inside this image"
                place = f"{name}:{word.place.line}"
                yield Finding(Level.FAIL, TITLE, words, hint, ABI, place=place)


def _wheel(wheel_match: re.Match[str], torch: Torch | None, cuda: Pair | None) -> Iterator[str]:
    version = wheel_match[2].lower()
    for_torch, for_cuda = _FOR_TORCH.search(version), _FOR_CUDA.search(version)
    if torch is not None and for_torch is not None:
        wanted = int(for_torch[1]), int(for_torch[2])
        if torch.version and numbers(torch.version)[:2] != wanted:
            yield f"PyTorch {wanted[0]}.{wanted[1]}, not {torch.version}"
    if cuda is not None and for_cuda is not None and int(for_cuda[1]) != cuda[0]:
        yield f"CUDA {for_cuda[1]}, not {cuda[0]}"
    abi_match = re.search(r"cxx11abi(true|false)", version)
    ours = _new_abi(torch) if torch is not None else None
    if abi_match is not None and ours is not None and (abi_match[1] == "true") != ours:
        age = "new" if abi_match[1] == "true" else "old"
        yield f"the {age} C++ ABI (cxx11abi{abi_match[1].upper()})"


def _new_abi(torch: Torch) -> bool | None:
    """Whether PyTorch's own wheel has the C++11 ABI: all from 2.7 on, 2.6 for CUDA 12.6 alone."""
    version = numbers(torch.version)[:2]
    if not version or (version == (2, 6) and torch.cuda is None):
        return None
    return version >= (2, 7) or (version == (2, 6) and torch.cuda == (12, 6))
