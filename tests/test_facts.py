"""What is said of a run is worded in one place: no second module has these words, and what
is added there appears on every face."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copied import ROOT, copied_tree, python
from tests.test_architecture import name, sources

HOMES = {
    r"\b(OVERRIDDEN|DOUBTFUL)\b": {"console/journal/state.py"},
    r"(?i)\boverridden,? by\b": set(),
    r"\bevaluated: ": {"console/render/facts/step.py"},
    r"^ with a warning$": {"console/render/facts/step.py"},
    r"\bBASELINE (IS )?DOWN\b": {"console/render/facts/run.py"},
    r"\bNOT SERVING\b": {"console/render/facts/run.py"},
    r"\banswers GARBAGE\b": {"console/render/facts/run.py"},
    r"\bthe baseline is (DOWN|DEGRADED)\b": {"console/render/facts/run.py"},
    r"^ has ended: ": {"console/render/facts/run.py"},
    r"^ asks you: ": {"console/render/facts/run.py"},
    r"\bsaid (\{\}|[A-Z-]+), but it would be\b": {"console/render/facts/gate.py"},
}
"""Words, and the modules that may have them; a mark and who is behind it are joined by a fact."""


def literals(path: Path) -> Iterator[str]:
    """The texts of a module, `{}` for what is put into them; no docstrings, no comments."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    within = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    spoken = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in within | spoken:
            yield str(node.value)


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    return {name(path): list(literals(path)) for path in sources("console", "screens", "widgets")}


@pytest.mark.parametrize("words", HOMES)
def test_words_stand_in_one_module(words: str, texts: dict[str, list[str]]) -> None:
    saying = {path for path, lines in texts.items() if any(re.search(words, x) for x in lines)}
    assert saying == HOMES[words]


def test_states_and_causes_become_words_in_one_module() -> None:
    """The others make words of the name of a metric, and of what the engine answers."""
    others = {"console/config/playbook/threshold.py", "console/runtime/docker/container.py"}
    making = {
        name(path)
        for path in sources("console", "screens", "widgets")
        if re.search(r"""replace\(["']_["'], ["'] ["']\)""", path.read_text("utf-8"))
    }
    assert making == {"console/render/facts/words.py", *others}


def test_the_search_sees_what_a_module_says(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""OVERRIDDEN"""\nx = f"OVERRIDDEN by {who}"  # DOUBTFUL\ny = {"a": "b"}\n')
    assert list(literals(module)) == ["OVERRIDDEN by {}", "a", "b"]


ADDED = [
    ("console/journal/events.py", '    evidence: Text = ""\n', '    confidence: Text = ""\n'),
    (
        "console/render/facts/gate.py", "    if verdict.overridden:\n",
        '    yield Fact("confidence", "CONFIDENCE", verdict.confidence)\n',
    ),
    ("console/journal/events.py", '    run_id: Text = ""\n', '    rack: Text = ""\n'),
    (
        "console/render/facts/run.py", "    if held := ",
        '    yield Fact("rack", "rack", view.header.rack)\n',
    ),
]  # fmt: skip
"""Fields of the events of a verdict and of a run, each with its words: path, place, addition."""
FACES = """
import io
from pathlib import Path

from console.frontends.cli.follow import EventPrinter
from console.frontends.cli.show import _print
from console.journal.fold import fold
from console.journal.guard_status import NOBODY
from console.journal.run_dir import RunDir
from console.journal.store import event_of
from console.render.report.document import markdown
from widgets.detail import detail_rows, summary_rows

step = {"id": "go", "title": "Fast enough?", "phase": "Trial", "kind": "gate"}
rows = [
    ("run.created", "", {"run_id": "r1", "rack": "B7", "title": "Trial", "steps": [step]}),
    ("step.state", "go", {"state": "running"}),
    ("verdict", "go", {"verdict": "GO", "confidence": "nine of ten"}),
    ("step.state", "go", {"state": "succeeded"}),
    ("run.state", "", {"state": "succeeded"}),
]
events = [event_of(n, 1e9 + n, kind, step, 1, data) for n, (kind, step, data) in enumerate(rows, 1)]
view, out = fold(events), io.StringIO()
EventPrinter(out, news=False).take(events)
print("== follow", out.getvalue())
print("== show")
_print(RunDir(Path("r1")), view, "succeeded", NOBODY)
print("== report", markdown(view))
for face, drawn in (
    ("panel", detail_rows(view, view.steps[0], [], 80, 2e9)), ("end", summary_rows(view, 80, 2e9))
):
    print(f"== {face}", *("".join(text for text, _ in row) for row in drawn), sep=chr(10))
"""


def test_a_fact_is_added_in_two_places_and_appears_on_every_face(tmp_path: Path) -> None:
    """Whoever records it is the third."""
    texts: dict[str, str] = {}
    for path, place, words in ADDED:
        text = texts.get(path) or (ROOT / path).read_text("utf-8")
        assert place in text, path
        texts[path] = text.replace(place, words + place, 1)
    done = python(copied_tree(tmp_path, texts), "-c", FACES)
    _, *faces = done.stdout.split("== ")
    lines = {face.split()[0]: face.splitlines() for face in faces}
    confidence = "CONFIDENCE: nine of ten"
    wanted = {
        "follow": [f"        GATE GO {confidence}"],
        "show": ["rack: B7", f"  {confidence}"],
        "report": [
            "**CONFIDENCE**: gate go, nine of ten.", "| Rack | B7 |",
            "| `go` | **CONFIDENCE** |  |  |  | nine of ten |",
        ],
        "panel": [confidence],
        "end": ["rack: B7", confidence],
    }  # fmt: skip
    assert {
        face: [line for line in lines.get(face, ()) if re.search("CONFIDENCE|B7", line)]
        for face in wanted
    } == wanted, done.stderr
