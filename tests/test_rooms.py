"""The drawing of the house: how much stands in a room, that no two modules need each other, and
that the places which CONTRIBUTING.md names are there."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("console", "screens", "widgets")
MAX_MODULES = 15


def modules() -> dict[str, Path]:
    """Every module of the program by its dotted name."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    found = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {dotted.removesuffix(".__init__"): path for dotted, path in found.items()}


def needed(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that are carried out, late ones with them: all but those for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from needed(child)


def graph() -> dict[str, set[str]]:
    """Which modules of the program each module imports."""
    known, edges = modules(), {}
    for dotted, path in known.items():
        names = set()
        for found in needed(ast.parse(path.read_text("utf-8"))):
            if isinstance(found, ast.Import):
                names |= {one.name for one in found.names}
            else:
                whole = {f"{found.module}.{one.name}" for one in found.names}
                names |= {one if one in known else str(found.module) for one in whole}
        edges[dotted] = (names & known.keys()) - {dotted}
    return edges


def test_no_room_has_more_than_fifteen_modules_side_by_side() -> None:
    rooms = Counter(path.parent for path in modules().values() if path.stem != "__init__")
    crowded = {str(room): count for room, count in rooms.items() if count > MAX_MODULES}
    assert crowded == {}
    assert max(rooms.values()) > MAX_MODULES // 2, "rooms are counted"


def test_no_two_modules_need_each_other() -> None:
    """A circle is an error with the modules on it; a late import is one, too."""
    edges = graph()
    assert sum(map(len, edges.values())) > len(edges)
    TopologicalSorter(edges).prepare()


MAX_PLACES = 3
WIDE = {
    "how a candidate is stopped in order (SIGTERM, then SIGKILL)",
    "why something may be ended",
    "how a systemd unit is looked at, started and stopped",
    "a stage of the rollback",
    "a value of the site that the rollback needs",
    "what is said of the baseline, and by which evidence",
}
"""Changes that still need more places. The list may only become shorter."""


def changes() -> dict[str, str]:
    """The rows of CONTRIBUTING's table, by what changes."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## Where do I change")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    found = {row.removeprefix("| ").partition(" | ")[0]: row for row in rows}
    assert len(found) == len(rows) >= 15
    return found


def places_in(row: str) -> list[str]:
    return re.findall(r"`([\w.]+/[\w./]*)`", row)


def test_a_change_needs_three_places_at_most() -> None:
    assert {what for what, row in changes().items() if len({*places_in(row)}) > MAX_PLACES} == WIDE


def test_where_a_change_is_made_is_there() -> None:
    for row in changes().values():
        places = places_in(row)
        assert places, row
        assert [place for place in places if not (ROOT / place).exists()] == [], row
        for name, file in re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", row):
            assert re.search(rf"\b{name}\b", (ROOT / file).read_text("utf-8")), (name, file)
