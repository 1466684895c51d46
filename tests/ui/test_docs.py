"""Documents that the program writes are the ones in the tree."""

from __future__ import annotations

from pathlib import Path

from console.actions import ACTIONS
from console.command.keys import markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_key_table_is_the_registry() -> None:
    kept = (ROOT / "docs" / "keys.md").read_text("utf-8")
    assert kept == markdown(), "omni-console keys > docs/keys.md"


def test_no_key_is_taken_twice_in_a_scope() -> None:
    for scope in {action.scope for action in ACTIONS}:
        keys = [key for action in ACTIONS if action.scope == scope for key in action.keys]
        assert len(keys) == len(set(keys)), scope


def test_what_stops_something_is_marked() -> None:
    assert {action.id for action in ACTIONS if action.dangerous} == {"emergency", "abort"}
    assert all(action.changes for action in ACTIONS if action.dangerous)
