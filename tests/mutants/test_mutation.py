"""What faults are found in a source, and that a place is found again after edits elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tests.mutants import listed
from tests.mutants.__main__ import Result, compare, verdicts
from tests.mutants.listed import Mutant
from tests.mutants.mutation import Place, Source

ROOT = Path(__file__).parents[2]


def faults(body: str) -> dict[str, set[str]]:
    """Of each kind, what the only function's faults make of their statement."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = Source(f'def f(a: "int" = 1, *, b=2) -> "str":\n    """Words: 3."""\n{lines}'.encode())
    found: dict[str, set[str]] = {}
    for fault in source.faults(next(source.places())):
        found.setdefault(fault.kind, set()).add(fault.new)
        compile(source.with_(fault.span, fault.new), "mutant", "exec")
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if a < b:\n    x = a", {"comparison": {"if a <= b", "if a >= b"}}),
        ("x = a in b", {"comparison": {"x = a not in b"}}),
        ("x = (a)  is   not b", {"comparison": {"x = (a)  is b"}}),
        ("x = a < b < a", {"comparison": {"x = a <= b < a", "x = a >= b < a",
                                          "x = a < b <= a", "x = a < b >= a"}}),
        ("while a and b:\n    a()", {"condition": {"while not (a and b)"},
                                    "boolean": {"while a or b"}, "removed": {"pass"}}),
        ("if not (a):\n    x = a", {"condition": {"if (a)"}}),
        ("x = a if b else 'ä'", {"condition": {"x = a if not (b) else 'ä'"}}),
        ("x = [c for c in a if c]", {"condition": {"x = [c for c in a if not (c)]"}}),
        ("x = 'ä', a + b", {"arithmetic": {"x = 'ä', a - b"}}),
        ("a += b", {"arithmetic": {"a -= b"}, "removed": {"pass"}}),
        ("x = f'{a + 1}' + b", {}),
        ("x = 4", {"constant": {"x = 3", "x = 5", "x = 8"}}),
        ("x: Literal[4] = True", {"constant": {"x: Literal[4] = False"}}),
        ("x = cast(Literal[4], a)", {}),
        ("x = '--all', 'words', '- words'", {"constant": {"x = 'XX--all', 'words', '- words'"}}),
        ("x = a == 'go'", {"comparison": {"x = a != 'go'"}, "constant": {"x = a == 'XXgo'"}}),
        ("return a", {"removed": {"return None"}}),
        ("return None", {}),
        ("return []", {}),
        ("a.b = b", {"removed": {"pass"}}),
        ("raise ValueError", {"removed": {"pass"}}),
        ("raise NotImplementedError", {}),
        ("for a in b:\n    break", {"removed": {"pass"}}),
        ("match a:\n    case [b] if b:\n        x = a", {"condition": {"[b] if not (b)"}}),
        ("try:\n    x = a\nexcept OSError:\n    raise", {"removed": {"pass"}}),
        ("assert a == 1", {}),
        ("def g():\n    return a", {}),
    ],
)  # fmt: skip
def test_faults_of_a_statement(body: str, expected: dict[str, set[str]]) -> None:
    assert faults(body) == expected


def test_places_and_what_is_none() -> None:
    text = """\
        from typing import TYPE_CHECKING
        __all__ = ["A"]
        A = 1
        if TYPE_CHECKING:
            def no(): return 1
        class C:
            x = 1
            def m(self):
                def inner(): return A
        """
    source = Source(dedent(text).encode())
    assert [place.name for place in source.places()] == ["A", "C.m", "C.m.inner"]
    assert source.readers("A") == {9}


def mutant(**more: object) -> Mutant:
    fixed = {"id": "m001", "file": "console/run/x.py", "function": "f", "line": 2,
             "kind": "removed", "occurrence": 1, "old": "a()", "new": "pass"}  # fmt: skip
    return Mutant(**(fixed | more))  # type: ignore[arg-type]


def test_a_place_is_found_after_edits_elsewhere() -> None:
    data = "# ä\nimport x\ndef g():\n    a()\ndef f():\n    a()\n    b()\n    a()\n".encode()
    found = listed.locate(mutant(), data)
    assert found is not None
    assert found.mutated == data[:-4] + b"pass\n"
    assert (found.lines, found.around) == ({8}, {6, 7, 8})
    assert listed.locate(mutant(occurrence=2), data) is None
    assert listed.locate(mutant(function="gone"), data) is None


def test_a_constant_is_run_where_it_is_read() -> None:
    data = b"A = 1\ndef f():\n    return A\n"
    found = listed.locate(mutant(function="A", occurrence=0, old="A = 1", new="A = 2"), data)
    assert found is not None
    assert (found.mutated[:5], found.lines) == (b"A = 2", {3})


def test_shares_add_up() -> None:
    assert listed.shares({"a": 1, "b": 2, "c": 4}, 10) == {"a": 1, "b": 3, "c": 6}


def test_the_list_can_be_tried() -> None:
    """Two hundred, one a place, each still there but for a few that edits since have taken."""
    mutants = listed.read()
    assert len({one.id for one in mutants}) == listed.COUNT
    assert len({(one.file, one.function) for one in mutants}) == listed.COUNT
    lost = []
    for one in mutants:
        path = ROOT / one.file
        found = listed.locate(one, path.read_bytes()) if path.exists() else None
        if found is None:
            lost.append(one.id)
        else:
            ast.parse(found.mutated)
    assert len(lost) <= listed.COUNT // 10, lost


def test_nothing_of_a_place_is_two_things() -> None:
    """A function's faults leave out those of functions inside it."""
    source = Source(b"def f():\n    x = 1\n    def g():\n        y = 2\n")
    places: dict[str, Place] = {place.name: place for place in source.places()}
    assert {fault.line for fault in source.faults(places["f"])} == {2}
    assert {fault.line for fault in source.faults(places["f.g"])} == {4}


def result(name: str, tier: str, outcome: str) -> Result:
    return Result(name, tier, outcome, "1", "1", "0", "t")


def test_what_two_suites_notice() -> None:
    old = [result("a", "test", "killed"), result("b", "test", "timeout"),
           result("c", "test", "survived")]  # fmt: skip
    new = [result("a", "test", "uncovered"), result("a", "full", "killed"),
           result("b", "test", "killed"), result("c", "test", "survived")]  # fmt: skip
    assert verdicts(new) == {"a": "make test-all only", "b": "make test", "c": "survived"}
    assert not compare(old, new)[1], "by make test alone only half"
    assert compare(old, old)[1]
    assert not compare(old, new[2:])[1], "one is missed"
