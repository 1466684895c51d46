"""Ids as they are typed, meant and given."""

from __future__ import annotations

import pytest

from console.config.lessons import registry
from tests.lessons.conftest import Put

KNOWN = frozenset({"F-002", "F-022", "F-006B", "S-014"})
TYPED = {
    "F-022": "F-022", "f22": "F-022", "f-22": "F-022", " F022 ": "F-022", "f-6b": "F-006B",
    "A1": "A-001", "x-1": "", "F-1000": "", "F": "", "": "", "F-022 x": "", "fast": "",
}  # fmt: skip
NEAR = {"F-22": "F-022", "f2": "F-002", "F-220": "F-022", "F-099": "", "hello": ""}


def test_an_id_in_any_form() -> None:
    assert {text: registry.typed(text) for text in TYPED} == TYPED


def test_near_misses() -> None:
    assert {text: registry.near(text, KNOWN) for text in NEAR} == NEAR


def test_the_next_free_id() -> None:
    assert [registry.next_free(letter, KNOWN) for letter in "FSP"] == ["F-023", "S-015", "P-001"]
    assert registry.next_free("F", {"F-998"}) == "F-999"
    with pytest.raises(ValueError, match="for F"):
        registry.next_free("F", {"F-999"})


def test_ones_own_are_found_by_their_file_name(put: Put) -> None:
    path = put("F-028")
    (path.parent / "notes.yaml").write_text("x")
    (path.parent / "F-029.txt").write_text("x")
    assert registry.files()["F-028"] == path
    assert {"F-028", "F-001"} <= registry.known()
    assert "F-029" not in registry.known()
    assert registry.is_own(path)
    assert not registry.is_own(registry.files()["F-001"])
