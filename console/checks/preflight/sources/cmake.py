"""CMakeLists.txt → what it looks for on every way through it, and the paths it includes.

Conditions are worked out as far as options, definitions and the platform say them; what depends on
anything else is "perhaps", never "yes".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from console.checks.lint.vocabulary import truthy
from console.checks.preflight.sources.tree import SourceTree, inside

MAX_COMMANDS = 50_000
DEEPEST = 40
MAX_FILES = 400
_TOKEN = re.compile(r'[^\S\n]+|\n|#\[=*\[|#[^\n]*|\[=*\[|"|[()]|[^\s()#"]+')
_HERE = re.compile(
    r"\$\{(?:CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR|CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR)\}/?"
)
_MODULES = ("pybind11_add_module", "python_add_library", "nanobind_add_module")
_TRUE = frozenset({"UNIX", "LINUX", "CMAKE_COMPILER_IS_GNUCXX", "ON", "TRUE", "1", "YES", "Y"})
_FALSE = frozenset({"WIN32", "MSVC", "APPLE", "ANDROID", "IOS", "MINGW", "OFF", "FALSE", "0", "NO",
                    "N", "IGNORE", ""})  # fmt: skip
_UNSURE = frozenset({"STREQUAL", "EQUAL", "LESS", "GREATER", "MATCHES", "IN_LIST", "EXISTS",
                     "TARGET", "DEFINED", "COMMAND", "POLICY", "TEST", "STRLESS", "STRGREATER",
                     "IS_DIRECTORY", "IS_NEWER_THAN"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """A package that is looked for: the names it may have, where, and whether the build ends
    without it (`sure`: on every way; else only where a condition holds)."""

    names: tuple[str, ...]
    path: str
    line: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """A relative path that is included and not in the tree."""

    target: str
    path: str
    line: int


@dataclass(slots=True)
class CmakeNeeds:
    """What the CMake files of one project ask for. `own`: names that it brings itself; `modules`:
    Python modules that it builds, each with the directory whose file says so."""

    wanted: list[Wanted] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    args: tuple[str, ...]
    line: int


def calls(text: str) -> Iterator[Call]:
    """The commands of a CMake file; what follows a text without an end is not read."""
    name, args, depth, at, line, count = "", list[str](), 0, 0, 1, 0
    begun = 1
    while (match := _TOKEN.match(text, at)) is not None and count < MAX_COMMANDS:
        token, at, here = match[0], match.end(), line
        line += token.count("\n")
        quoted = token == '"'
        if quoted or re.fullmatch(r"#?\[=*\[", token):
            end = _close(text, at, token)
            if end < 0:
                return
            body, at = text[at:end], end + (1 if quoted else token.count("=") + 2)
            line += body.count("\n")
            if depth and not token.startswith("#"):
                args.append(body)
        elif token.isspace() or token.startswith("#"):
            continue
        elif token == "(":
            depth += 1
            if depth == 1:
                args = []
            else:
                args.append(token)
        elif token == ")":
            depth -= 1
            if depth == 0 and name:
                count += 1
                yield Call(name.lower(), tuple(args), begun)
                name = ""
            elif depth < 0:
                return
            else:
                args.append(token)
        elif depth:
            args.append(token)
        else:
            name, begun = token, here


def _close(text: str, at: int, opened: str) -> int:
    """Where a quoted or bracketed text ends, -1 if nowhere."""
    if opened != '"':
        return text.find(f"]{'=' * opened.count('=')}]", at)
    while (end := text.find('"', at)) >= 0:
        inner = text[at:end]
        if (len(inner) - len(inner.rstrip("\\"))) % 2 == 0:
            return end
        at = end + 1
    return -1


@dataclass(slots=True)
class _Level:
    """An `if`, the part of it that is being read, and which package's absence leads there."""

    state: bool | None
    taken: bool | None
    lacking: str = ""
    present: str = ""
    routine: bool = False
    """Whether it is a function or a macro."""


class _Reader:
    """One project: follows add_subdirectory and include from a first file."""

    def __init__(self, tree: SourceTree, given: Mapping[str, str]) -> None:
        self.tree = tree
        self.values = dict(given)
        self.given = given
        self.needs = CmakeNeeds()
        self.depth = 0

    def read(self, path: str, root: str, sure: bool | None = True) -> None:
        """Read a file whose project begins at `root`."""
        text = self.tree.text(path)
        many = len(self.needs.seen) >= MAX_FILES or self.depth >= DEEPEST
        if text is None or path in self.needs.seen or many:
            return
        self.needs.seen.add(path)
        self.depth += 1
        levels = [_Level(sure, False)]
        for call in calls(text):
            if call.name == "return" and not any(open_level.routine for open_level in levels):
                if levels[-1].state is True:
                    break
                after = None if levels[-1].state is None else True
                for level in levels:
                    level.state = _both(level.state, after)
            elif not self._branch(call, levels) and levels[-1].state is not False:
                self._take(call, path, root, levels)
        self.depth -= 1

    def _branch(self, call: Call, levels: list[_Level]) -> bool:
        """Follow if, elseif, else, function and their ends."""
        if call.name in ("if", "function", "macro", "foreach", "while"):
            above = levels[-1].state
            condition = self._truth(call.args) if call.name == "if" else None
            level = _Level(_both(above, condition), condition)
            level.routine = call.name in ("function", "macro")
            level.present, level.lacking = _of_found(call.args) if call.name == "if" else ("", "")
            if level.lacking:
                level.state = _both(above, None)
            levels.append(level)
        elif call.name in ("elseif", "else") and len(levels) > 1:
            level, above = levels[-1], levels[-2].state
            condition = self._truth(call.args) if call.name == "elseif" else True
            rest = None if level.taken is None else not level.taken
            level.state = _both(above, _both(rest, condition))
            level.lacking = level.present if call.name == "else" else _of_found(call.args)[1]
            if level.lacking:
                level.state = _both(above, None)
            level.taken = True if level.taken or condition else level.taken and condition
        elif call.name.startswith("end") and call.name[3:] in (
            "if", "function", "macro", "foreach", "while",
        ):  # fmt: skip
            if len(levels) > 1:
                levels.pop()
        else:
            return False
        return True

    def _take(self, call: Call, path: str, root: str, levels: list[_Level]) -> None:
        state, args = levels[-1].state, call.args
        here = posixpath.dirname(path)
        if call.name == "message" and args[:1] == ("FATAL_ERROR",) and levels[-1].lacking:
            sure = len(levels) > 1 and levels[-2].state is True
            self._want((levels[-1].lacking,), path, call.line, sure)
        elif call.name in ("find_package", "find_library") and args:
            self._read_find(call, path, state is True)
        elif call.name in ("pkg_check_modules", "pkg_search_module") and args:
            self._want(("PkgConfig",), path, call.line, state is True)
            self._modules(call, path, state is True)
        elif call.name == "option" and args:
            self._set(args[0], args[2] if len(args) > 2 else "OFF", state)
        elif call.name == "set" and len(args) > 1:
            self._set(args[0], args[1], state, cached="CACHE" in args)
        elif call.name in ("add_subdirectory", "include", "include_directories"):
            self._include(call, path, root, here, state)
        elif call.name.lower() in ("fetchcontent_declare", "externalproject_add") and args:
            self.needs.own.add(args[0].lower())
        elif args and call.name in _MODULES:
            self.needs.modules.setdefault(args[0], here)

    def _set(self, name: str, value: str, state: bool | None, *, cached: bool = True) -> None:
        if name in self.given and cached:
            return
        if state is True and "$" not in value:
            self.values[name] = value
        else:
            self.values.pop(name, None)

    def _read_find(self, call: Call, path: str, sure: bool) -> None:
        if any(f"{call.args[0]}_{end}" in self.given for end in ("DIR", "ROOT")):
            return  # the build says where it is
        if call.name == "find_package" and "REQUIRED" in call.args:
            self._want((call.args[0],), path, call.line, sure)
        elif call.name == "find_library" and "REQUIRED" in call.args:
            names = call.args[call.args.index("NAMES") + 1 :] if "NAMES" in call.args else ()
            self._want((*names[:1], *call.args[1:2]), path, call.line, sure)

    def _modules(self, call: Call, path: str, sure: bool) -> None:
        """`pkg_check_modules(PREFIX REQUIRED module>=2 …)`."""
        if "REQUIRED" not in call.args:
            return
        words = ("REQUIRED", "QUIET", "IMPORTED_TARGET", "GLOBAL", "NO_CMAKE_PATH",
                 "NO_CMAKE_ENVIRONMENT_PATH")  # fmt: skip
        for name in (argument for argument in call.args[1:] if argument not in words):
            self._want((name, call.args[0]), path, call.line, sure)

    def _want(self, names: tuple[str, ...], path: str, line: int, sure: bool) -> None:
        if not any("$" in name for name in names):
            self.needs.wanted.append(Wanted(names, path, line, sure))

    def _include(self, call: Call, path: str, root: str, here: str, state: bool | None) -> None:
        kinds = ("SYSTEM", "BEFORE", "AFTER", "EXCLUDE_FROM_ALL", "OPTIONAL")
        words = [argument for argument in call.args if argument not in kinds]
        if call.name == "add_subdirectory":
            words = words[:1]
            self.needs.own.update(
                posixpath.basename(folder.rstrip("/")).lower() for folder in words
            )
        for word in words:
            top = re.match(r"\$\{(CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR)\}", word)
            named = _HERE.match(word)
            if "$" in (short := _HERE.sub("", word, count=1)) or short.startswith("/"):
                continue
            target = inside(posixpath.join(root if top else here, short))
            if call.name == "add_subdirectory" and target is not None:
                self.read(posixpath.join(target, "CMakeLists.txt").lstrip("/"), root, state)
            elif call.name == "include" and target is not None:
                self.read(target if target.endswith(".cmake") else f"{target}.cmake", root, state)
            wanted = call.name == "add_subdirectory" or (named and ".." in short)
            if wanted and state is True and (target is None or not self.tree.has(target)):
                shown = target if target is not None else posixpath.normpath(short)
                self.needs.missing.append(Missing(shown, path, call.line))

    def _truth(self, words: tuple[str, ...], depth: int = 0) -> bool | None:
        """What a condition comes to; None where this cannot be told."""
        if depth > DEEPEST or not words:
            return None
        for sign in ("OR", "AND"):
            if (at := _outside(words, sign)) >= 0:
                left = self._truth(words[:at], depth + 1)
                right = self._truth(words[at + 1 :], depth + 1)
                return _either(left, right) if sign == "OR" else _both(left, right)
        if words[0] == "NOT":
            inner = self._truth(words[1:], depth + 1)
            return None if inner is None else not inner
        if words[0] == "(" and words[-1] == ")":
            return self._truth(words[1:-1], depth + 1)
        return self._word_truth(words[0]) if len(words) == 1 else None

    def _word_truth(self, word: str) -> bool | None:
        name = word[2:-1] if word.startswith("${") and word.endswith("}") else word
        if name.endswith("_FOUND"):
            return True
        value = self.values.get(name, name)
        if value.upper() in _FALSE:
            return False
        if value.upper() in _TRUE or truthy(value):
            return True
        return None


def _outside(words: tuple[str, ...], sign: str) -> int:
    """Where a word stands outside parentheses; -1 if nowhere."""
    depth = 0
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == sign and at:
            return at
    return -1


def _both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return True if left and right else None


def _either(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return False if left is False and right is False else None


def _of_found(words: tuple[str, ...]) -> tuple[str, str]:
    """(package whose presence, package whose absence) a condition of one word asks for."""
    if len(words) == 1 and words[0].endswith("_FOUND"):
        return words[0].removesuffix("_FOUND"), ""
    if len(words) == 2 and words[0] == "NOT" and words[1].endswith("_FOUND"):
        return "", words[1].removesuffix("_FOUND")
    return "", ""


def read(
    tree: SourceTree, path: str, given: Mapping[str, str], all_given: bool = True
) -> CmakeNeeds:
    """What the project of a CMakeLists.txt asks for; `given` are its definitions (-DNAME=VALUE).
    Unless these are all, everything is "perhaps"."""
    reader = _Reader(tree, given)
    reader.read(path, posixpath.dirname(path), True if all_given else None)
    return reader.needs
