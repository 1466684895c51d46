"""A contract step in a whole run: the baseline is asked while it serves, once, and the candidate is
compared with that."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from console.bench.contract.answer import SILENT
from console.host import process
from tests.runner.e2e.sites import UP, book
from tests.runner.whole.server import ScriptedServer
from tests.runner.whole.world import ScriptedWorld as World

GATE = (
    "id: same, gate: [{metric: like.changed, go: '== 0'}, "
    "{metric: like.answers_differ, go: '<= 0 %'}]"
)
CASES = """\
schema: omni.contract/v1
cases:
  - {id: own, answer: {prompt: How are you?, max_tokens: 5}}
"""


def like(more: str = "", of: str = "service: cand") -> str:
    return f"id: like, contract: {{{of}{more}}}"


def sealed(world: World) -> list[Path]:
    return list((world.records / "contract").glob("*.json"))


def detail(world: World, step: str) -> str:
    return world.at(step).detail


def test_the_same_server_is_the_same_and_is_asked_before_the_outage(world: World) -> None:
    done = world.go(world.write("b.yaml", book(UP, like(), GATE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    order = [step.id for step in world.view().steps]
    assert order.index("baseline:contract") < order.index("baseline:stop")
    assert len(sealed(world)) == 1
    assert sealed(world)[0].stat().st_mode & 0o077 == 0
    report = world.run.report.read_text()
    assert "## Answers of cand (`like`)" in report
    assert "same schemas" in report


def test_what_is_sealed_is_not_asked_again_and_a_difference_is_named(world: World) -> None:
    playbook = world.write("b.yaml", book(UP, like(), GATE))
    assert world.go(playbook).code == 0
    [path] = sealed(world)
    was: dict[str, Any] = json.loads(path.read_text())
    for answer in was["cases"]["haiku"]["answers"]:
        answer["content"]["text"] = "light over the sea"
    for answer in was["cases"]["capital"]["answers"][1:]:
        answer["content"]["text"] = "Lyon"
    path.write_text(json.dumps(was))
    done = world.go(playbook)
    assert (done.code, done.json["decision"]) == (3, "no_go"), done
    assert "nothing asked" in detail(world, "baseline:contract")
    assert "1 of " in detail(world, "like")
    assert "(the baseline differs from itself in 1)" in detail(world, "like")
    changes = world.view().measured["like"].contract["changes"]
    assert [(row["case"], row["fact"], row["before"][:5]) for row in changes] == [
        ("haiku", "text", "light")
    ]
    assert world.view().metrics["like"]["changed"]["value"] == 1
    (criterion, _) = world.view().verdicts[0].criteria
    assert ": same tools" in criterion["why"], "the gate's own line says what it was"
    assert "light over the sea" in world.run.report.read_text()


def test_a_case_that_was_sealed_without_an_answer_is_asked_again(world: World) -> None:
    playbook = world.write("b.yaml", book(UP, like(), GATE))
    assert world.go(playbook).code == 0
    [path] = sealed(world)
    was: dict[str, Any] = json.loads(path.read_text())
    silent = {**was["cases"]["haiku"]["answers"][0], "state": SILENT, "form": {}, "content": {}}
    was["cases"]["haiku"]["answers"] = [silent] * 2
    path.write_text(json.dumps(was))
    done = world.go(playbook)
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert detail(world, "baseline:contract").startswith("1 case asked")
    answers = json.loads(path.read_text())["cases"]["haiku"]["answers"]
    assert [one["state"] for one in answers] == ["offered"] * 2


def test_a_case_that_is_never_answered_fails_no_run(world: World) -> None:
    world.write("own.yaml", CASES.replace("id: own", "id: own, timeout: 1ms"))
    playbook = world.write("b.yaml", book(UP, like(", cases: own.yaml")))
    for _ in range(2):
        done = world.go(playbook)
        assert done.code == 0, done


def test_another_model_file_is_another_baseline(world: World) -> None:
    playbook = world.write("b.yaml", book(UP, like()))
    mine = world.write("mine.gguf", "")
    mine.write_bytes(world.model.read_bytes())
    site = json.loads(world.site.read_text())
    site["baseline"]["models"] = [str(mine)]
    world.site.write_text(json.dumps(site))
    assert world.go(playbook).code == 0
    assert world.go(playbook).code == 0
    assert len(sealed(world)) == 1
    mine.write_bytes(world.model.read_bytes() + b" ")
    assert world.go(playbook).code == 0
    assert "cases asked" in detail(world, "baseline:contract")
    assert len(sealed(world)) == 2


def test_cases_that_are_new_are_asked_and_added_to_what_is_sealed(world: World) -> None:
    assert world.go(world.write("b.yaml", book(UP, like()))).code == 0
    world.write("own.yaml", CASES)
    assert world.go(world.write("c.yaml", book(UP, like(", cases: own.yaml")))).code == 0
    assert detail(world, "baseline:contract").startswith("1 case asked")
    [path] = sealed(world)
    cases = json.loads(path.read_text())["cases"]
    assert {"own", "haiku"} <= cases.keys()
    assert cases["own"]["answers"][0]["content"]["text"] == "0 1 2 3 4 "


def test_files_that_cannot_be_used_are_refused_before_step_1(world: World) -> None:
    world.write("own.yaml", CASES.replace("max_tokens", "tokens"))
    refused = world.go(world.write("b.yaml", book(UP, like(", cases: own.yaml"))))
    assert refused.code == 2, refused
    assert "own.yaml:3:46: unknown key 'tokens'" in refused.err
    for more in (", cases: none.yaml", ", against: none.json", ", against: own.yaml"):
        refused = world.go(world.write("c.yaml", book(UP, like(more))))
        assert refused.code == 2, refused
    assert world.runs == []
    made = book("id: make, run: [cp, own.yaml, new.yaml]", UP, like(", cases: new.yaml"))
    assert world.console("plan", str(world.write("d.yaml", made))).code == 0
    done = world.go(world.write("d.yaml", made))
    assert done.code == 5, done
    assert "unknown key 'tokens'" in detail(world, "baseline:contract")
    assert world.serves()


def test_a_file_stands_for_the_baseline_and_no_row_asks_it(world: World) -> None:
    kept = world.console("check", "contract", world.base_url, "--save", str(world.root / "f"))
    assert kept.code == 0, kept
    step = like(", against: f", of=f"url: '{world.base_url}'")
    done = world.go(world.write("b.yaml", book(step, GATE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert [step.id for step in world.view().steps] == ["like", "same"]


def test_a_suite_is_told_the_address_and_its_exit_code_decides(world: World) -> None:
    suite = """suite: [sh, -c, 'echo "at $OMNI_URL; passed: 7"; exit CODE']"""
    outputs = "outputs: {passed: {pattern: 'passed: ([0-9]+)', unit: count}}"
    judge = "id: same, gate: [{metric: like.passed, go: '>= 7'}]"
    good = f"{like(', ' + suite.replace('CODE', '0'), of='service: baseline')}, {outputs}"
    done = world.go(world.write("b.yaml", book(good, judge)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert f"at {world.base_url}; passed" in world.run.attempt_log("like", 1).read_text()
    assert [step.id for step in world.view().steps] == ["like", "same"], "no case was asked"
    bad = like(", " + suite.replace("CODE", "4"), of="service: baseline")
    assert world.go(world.write("c.yaml", book(bad))).code == 5
    assert (world.at("like").cause, detail(world, "like")) == ("exit_code", "ended by exit code 4")


@pytest.mark.parametrize(
    ("refusal", "words"),
    [((501, "This server does not support completions."), ("schemas dropped", "answers missing")),
     ((401, "Invalid API Key"), ("it wants a key", "HTTP 401 Invalid API Key")),
     ((429, "Too many requests"), ("HTTP 429 Too many requests",)),
     ((500, "EngineDeadError: out of memory"), ("HTTP 500 EngineDeadError",))],
)  # fmt: skip
def test_an_engine_that_refuses_everything_lacks_all_of_it_only_where_it_says_so(
    world: World, refusal: tuple[int, str], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedServer, "refusal", refusal)
    world.machine.answers[world.cand_port] = 0
    done = world.go(world.write("b.yaml", book(UP, like(), GATE)))
    lacks = refusal[0] == 501
    assert (done.code, done.json["decision"]) == ((3, "no_go") if lacks else (4, "hold")), done
    for one in words:
        assert one in detail(world, "like")
    assert "same answers" not in detail(world, "like")
    assert lacks or words[0] in world.run.report.read_text()


def test_an_abort_does_not_wait_for_an_answer(world: World) -> None:
    wait = "id: ok, approval: {prompt: sure?}"
    world.detach(world.write("b.yaml", book(UP, wait, like())))
    world.until(lambda: str(world.view().state) == "waiting_approval", "it waits")
    frozen = process.read_record(world.records, "cand")
    assert frozen is not None
    process.send(*frozen, signal.SIGSTOP)
    assert world.tell("approve").code == 0
    world.until(lambda: str(world.at("like").state) == "running", "the candidate is asked")
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"
    assert str(world.at("like").state) == "cancelled"
    assert world.serves()
