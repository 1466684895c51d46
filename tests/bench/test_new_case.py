"""A new kind of case of a contract is a model with its key, a record with what asks, and a row of
the docs: no other place has to know it."""

import re
from pathlib import Path

import pytest

from console.bench.contract.ask import KINDS
from tests.copied import ROOT, changed, copied_tree, python

MODELS, ASK = "console/config/contract.py", "console/bench/contract/ask.py"
PAGE = "docs/reference/contract.md"
MODEL = '''class SeedCase(Prompt):
    """Whether a server takes a seed of one's own."""

    seed: int = Field(ge=0)


class CaseModel(OneOf):
'''
KEY = "    request: RequestCase | None = None\n", "    seed: SeedCase | None = None\n"
ASKER = """def _seed(server: Server, case: Case) -> Answer:
    reply = _talk(server, case, {"seed": case.ask["seed"], "n_probs": 1})
    if isinstance(reply, Answer):
        return reply
    return Answer(form={"finish": reply.finish}, content=read.content_of(reply))


class CaseKind(NamedTuple):
"""
RECORD = '    "page": CaseKind(', '    "seed": CaseKind("protocol", _seed, "seed"),\n'
ROW = "| `page` | `path`"
CASES = """
schema: omni.contract/v1
cases:
  - {id: mine, seed: {prompt: hello, seed: 7}}
"""
LOOK = """
import json
from pathlib import Path
from console.bench.contract.compare import compare
from console.bench.contract.fingerprint import fingerprint_of, take
from console.config.contract import load_cases
from tests.bench.talking import Talk, talking

cases = load_cases(Path("cases.yaml"))
def taken(talk):
    with talking(talk) as url:
        kept = json.dumps(take(url, cases, repeat=1, now=lambda: 7.0).to_json())
    return fingerprint_of(json.loads(kept))
first, refused = taken(Talk()), taken(Talk(closed=(400, '{"error": {"message": "no seed here"}}')))
print(dict(first.cases["mine"].answers[0].form), first.cases["mine"].group)
print(compare(first, refused).words())
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more kind of case, and its tests."""
    key, more = KEY
    models = changed(MODELS, "class CaseModel(OneOf):\n", MODEL)[MODELS]
    asking = changed(ASK, "class CaseKind(NamedTuple):\n", ASKER)[ASK]
    before, record = RECORD
    assert key in models
    assert before in asking
    row = "| `seed` | the same, `seed` | how it ended; the words |\n"
    places = {
        MODELS: models.replace(key, key + more, 1),
        ASK: asking.replace(before, record + before, 1),
        **changed(PAGE, ROW, row + ROW),
    }
    return copied_tree(tmp_path_factory.mktemp("tree"), {**places, "cases.yaml": CASES})


def test_a_file_can_have_it_and_servers_are_compared_by_it(tree: Path) -> None:
    assert python(tree, "-m", "console", "lint", "cases.yaml").returncode == 0
    looked = python(tree, "-c", LOOK)
    assert looked.stdout.splitlines() == ["{'finish': 'length'} protocol", "protocol dropped"], (
        looked.stderr
    )


def test_what_holds_for_every_kind_holds_for_it(tree: Path) -> None:
    tests = "tests/bench/test_contract.py::test_each_kind_has_a_model_and_a_row"
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contributing_names_these_places_and_no_other() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| a kind of case of a contract |"))
    assert re.findall(r"`([\w/]+/\w+\.\w+)`", row) == [MODELS, ASK, PAGE]
    assert "seed" not in KINDS
