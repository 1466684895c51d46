"""The list of mutants can be tried, and a place is found again after edits elsewhere."""

import ast

from tests.mutants import faults
from tests.mutants.__main__ import ROOT


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
