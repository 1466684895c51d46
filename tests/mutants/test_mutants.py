"""What faults are found in a source, and that a place is found again after edits elsewhere."""

from __future__ import annotations

import ast

import pytest

from tests.mutants import faults
from tests.mutants.__main__ import ROOT

BODIES: dict[str, dict[str, set[str]]] = {
    "if a < b:\n    x = a": {"comparison": {"if a <= b", "if a >= b"}},
    "x = (a)  is   not b": {"comparison": {"x = a is b"}},
    "x = a < b in a": {"comparison": {"x = a <= b in a", "x = a >= b in a", "x = a < b not in a"}},
    "while a and b:\n    a()": {"condition": {"while not (a and b)"}, "boolean": {"while a or b"},
                                "removed": {"pass"}},
    "if not (a):\n    x = a": {"condition": {"if a"}},
    "x = a if b else 'ä'": {"condition": {"x = a if not b else 'ä'"}},
    "for x in [c for c in a if c]: pass": {"condition": {"for x in [c for c in a if not c]"}},
    "x = ('ä', a + b)": {"arithmetic": {"x = ('ä', a - b)"}},
    "with a(3) as b:\n    b += a": {"constant": {"with a(2)", "with a(4)", "with a(6)"},
                                    "arithmetic": {"b -= a"}, "removed": {"pass"}},
    "x: Literal[4] = True": {"constant": {"x: Literal[4] = False"}},
    "x = ('--all', 'words', f'{a + 1}')": {"constant": {"x = ('XX--all', 'words', f'{a + 1}')"}},
    "if a == 'go':\n    x = a": {"comparison": {"if a != 'go'"}, "constant": {"if a == 'XXgo'"}},
    "match a:\n    case [b] if b:\n        return []": {"condition": {"case [b] if not b"}},
    "try:\n    a.b = b\nexcept OSError:\n    return a": {"removed": {"pass", "return None"}},
    "assert a == 1\ndef g():\n    return a": {},
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_faults_of_a_statement(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = faults.Source(f'def f(a: "int" = 1, *, b=2) -> "str":\n    """Words: 3."""\n{lines}')
    found: dict[str, set[str]] = {}
    for kind, begin, end, new in source.faults(source.tree.body[0]):
        found.setdefault(kind, set()).add(new)
        compile(source.text[:begin] + new + source.text[end:], "mutant", "exec")
    assert found == BODIES[body]


def test_a_place_is_found_after_edits_elsewhere() -> None:
    text = "# ä\nA = 1\nclass C:\n  def f(self):\n    a(A)\n    b()\n    a(A)\ndef f(): a(A)\n"
    one = faults.Mutant("m001", "x.py", "C.f", 2, "removed", 1, "a(A)", "pass")
    expected = text.replace("b()\n    a(A)", "b()\n    pass")
    assert faults.locate(one, text) == (expected, {7}, {5, 6, 7})
    assert faults.locate(one._replace(occurrence=2), text) is None
    constant = one._replace(function="A", occurrence=0, old="1", new="2")
    assert faults.locate(constant, text) == (text.replace("1", "2"), {5, 7, 8}, set())


def test_the_list_can_be_tried() -> None:
    """Two hundred, one a place, each still there but for a few that edits since have taken."""
    mutants = faults.read()
    assert len({one.id for one in mutants}) == faults.COUNT
    assert len({(one.file, one.function) for one in mutants}) == faults.COUNT
    found = [faults.locate(one, (ROOT / one.file).read_text("utf-8")) for one in mutants
             if (ROOT / one.file).exists()]  # fmt: skip
    mutated = [ast.parse(each[0]) for each in found if each]
    assert len(mutated) >= faults.COUNT * 0.9
