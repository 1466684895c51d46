"""What reports, lists, plans and a run that is followed say, word for word.

What was said stands in __snapshots__; `make golden` writes it anew.
"""

import io
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.checks.lint.unit import Finding, Severity
from console.cli import main
from console.common.units import plural
from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.frontends.cli import follow
from console.host.sample import Machine
from console.journal.events import Breach
from console.journal.run_view import GuardEvent, RunView, StepMeasurement
from console.journal.state import VERBS, Pause, RunState, refusal
from console.render import guard
from console.render.facts.words import when
from console.render.report import compare as comparison
from console.render.report import markdown as texts
from console.render.report.document import Evidence, evidence, markdown
from console.render.report.guard import guard_chart, guard_lines
from console.render.report.lessons import candidates
from console.render.report.next_steps import next_steps
from console.render.report.soak import live_words, summary
from console.runner import cutover
from console.runner.bisect import report as bisected
from console.runner.bisect.record import BisectQuery, Record, Try
from console.runner.bisect.search import Word
from console.runner.control import Verb
from console.runner.guard import limits
from console.runner.prepare import plan_text
from console.runner.prepare.plan import make_plan
from console.runtime import spec
from console.runtime.docker.client import pull_hint
from tests.runner.unit import cases, reported
from tests.runner.unit.conftest import Look, MakePlan
from tests.runner.unit.journals import BAD, BEGUN, BREACHES, JOURNALS, shelved, view
from tests.runner.unit.stories import STORIES, Story, attempts, changes, drawn, whole


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same clock and width wherever this runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        patch.setenv("COLUMNS", "100")
        time.tzset()
        yield
    time.tzset()


# -- reports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tell", [reported.no_go, reported.soaked, view], ids=lambda x: x.__name__)
def test_a_report(tell: Story, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert whole(tell(), tmp_path) == snapshot


@pytest.mark.parametrize("name", STORIES)
def test_a_report_of(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """By how it differs from that of the first trial."""
    base = reported.no_go() if "soak" not in name else reported.soaked()
    text = markdown(STORIES[name]())
    told = changes(markdown(base), text)
    assert (told if len(told) < len(text) else text) == snapshot


@pytest.mark.parametrize(
    "tries",
    ["", "bad 3", "bad 3, good 1, good 2", "bad 3, skip 1, skip 2", "skip 1, good 0", "bad 0"],
)
def test_what_a_bisect_has_found(tries: str, snapshot: SnapshotAssertion) -> None:
    versions = tuple(f"v{number}" for number in range(6))
    record = Record(BisectQuery("trial", "d", "local", "image", versions, {"port": "8001"}), 1e9)
    for one in filter(None, tries.split(", ")):
        word, at = one.split()
        figures = {"bench.tok_s": f"1{at} tok/s"} if word != "skip" else {}
        record.tries.append(
            Try(int(at), Word(word), f"the gate said {word} | <b>", f"run-{at}",
                "bench.tok_s" if figures else "", figures, 60.0, "serving, 10.8 tok/s")
        )  # fmt: skip
    cost = bisected.cost(record, 60.0, "median of 2 runs", 30.0, verify=True)
    assert [bisected.line(record), cost, *bisected.conclusion(record)] == snapshot
    assert bisected.markdown(record) == snapshot


def test_memory_in_a_report(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    made = reported.no_go()
    run = reported.run_dir(tmp_path, made)
    held, lines = whole(made, tmp_path), {}
    points = made.measured["fit"].envelope["points"][1]
    points["vram"]["NVIDIA GeForce RTX 5090"] = 10 * reported.GIB
    points["swap"] = 1
    lines["above"] = changes(held, whole(made, tmp_path))
    found = evidence(run, made)
    cards = [replace(gauge, cards={}) for gauge in found.gauges]
    lines["no cards read"] = changes(held, markdown(made, replace(found, gauges=cards), "report"))
    lines["nobody looked"] = changes(held, markdown(made, Evidence()))
    lines["the file is gone"] = changes(held, markdown(made, Evidence(), "report"))
    made.steps[3].started = 0.0
    lines["no load"] = changes(held, markdown(made, found, "report"))
    made.measured["fit"] = StepMeasurement(envelope={"schema": 1, "points": "none"})
    lines["no prediction"] = changes(held, markdown(made, found, "report"))
    assert lines == snapshot


@pytest.mark.parametrize("name", BREACHES)
def test_a_guard_in_a_report(name: str, snapshot: SnapshotAssertion) -> None:
    """By how it differs from the first breach."""
    told = []
    for made in (BREACHES["memory ran out"], BREACHES[name]):
        rows, chart = (
            [*guard_lines(made, {}), *next_steps(made), *candidates(made, ())],
            guard_chart(made),
        )
        told.append("\n".join(rows + ([chart.about, *drawn(chart.svg)] if chart else [])))
    first, text = told
    assert (text if name == "memory ran out" else changes(first, text)) == snapshot


def test_numbers_in_a_report(snapshot: SnapshotAssertion) -> None:
    values = (None, math.nan, 0.0, 0.0004, 0.81234, 1.0, 10.7512, 999.96, 1997.31, -3.5, 4.2e9)
    units, stds = ("tok/s", "s", "B", "ratio", "count", ""), (0.0, 6e-4, 0.06, 7.0)
    told = {unit: [texts.figure(value, unit) for value in values] for unit in units}
    told["like"] = [
        texts.figure(116.94e9, "B", like) for like in ("<= 117GB", "< 1 kB", "< 9GiB", "")
    ]
    for unit in units:
        told[f"spread {unit}"] = [
            " | ".join(texts.spread(value, std, unit) for std in stds) for value in values[2:]
        ]
    told["spread"] = [texts.spread(1.0, None), texts.spread(1.0, -1.0), texts.spread(None, 1.0)]
    bases = (None, 0.0, 5.0, -2.0, math.inf)
    told["change"] = [" | ".join(texts.change(value, base) for base in bases) for value in values]
    told["plural"] = [*(plural(n, "run") for n in range(3)), when(0), texts.took(None)]
    told["text"] = [
        write(BAD + "--api-key abc ](x) <b> HF_TOKEN=x")
        for write in (texts.prose, texts.plain, texts.code)
    ]
    told["keys"] = texts.block(["x --hf-token abc", "-hft=1", "API_KEY=2", "api_key: '3'", "key 4"])
    assert {name: "\n".join(rows) for name, rows in told.items()} == snapshot


# -- charts ----------------------------------------------------------------------------------------


def pictures(made: RunView, place: Path) -> dict[str, list[str]]:
    found = evidence(reported.run_dir(place, made), made).charts
    return {chart.name: [chart.about, *chart.link("a b"), *drawn(chart.svg)] for chart in found}


def test_charts(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    made = reported.soaked(gaps=[[1200.0, 1980.0]])  # wide enough for its name
    assert pictures(made, tmp_path) == snapshot


def test_other_charts(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Two thresholds, one of them relative; a card without a name, swap, small figures."""
    made = STORIES["a_relative_threshold_and_one_on_the_baseline"]()
    made.header.machine["cards"] = []
    run = reported.run_dir(tmp_path, made)
    rows = [json.loads(line) for line in run.gauges.read_text().splitlines()[:-1:100]]
    rows = [{**row, "swap": n * 2**20, "ram": n * 2**19} for n, row in enumerate(rows)]
    run.gauges.write_text("\n".join(map(json.dumps, rows)))
    assert {one.name: drawn(one.svg) for one in evidence(run, made).charts} == snapshot


# -- several runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 300, 0])
def test_attempts_side_by_side(width: int, snapshot: SnapshotAssertion) -> None:
    """For terminals of some widths, and as Markdown."""
    made = comparison.compare(attempts() if width != 300 else attempts()[-2:])
    text = "\n".join(comparison.lines(made, width)) if width else comparison.markdown(made)
    assert text == snapshot


def test_attempts_of_different_playbooks(snapshot: SnapshotAssertion) -> None:
    found = attempts()[-3:][::-1]
    found[0][0].playbook = "other"
    found[1][0].metrics["again"] = dict(found[1][0].metrics["bench"])
    found[1][0].measured["again"] = StepMeasurement({"service": "cand"})
    made = comparison.compare(found)
    assert [comparison.markdown(made), comparison.lines(made, 80)] == snapshot


# -- a run that is listed, shown, followed ---------------------------------------------------------


@pytest.mark.parametrize("name", JOURNALS)
def test_a_run_followed_and_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    monkeypatch.setattr(follow, "CLEANUP_S", 0.0)
    run, out = shelved(JOURNALS[name]), io.StringIO()
    followed = follow.Follow(run, out, interactive=False).until_end()[0]
    run.report.write_text("x")
    again = io.StringIO()
    follow.Follow(run, again, interactive=False).until_end()
    shown = main(["show", "1a2b"])
    assert {
        "followed": out.getvalue(), "codes": [int(followed), shown],
        "with a report": changes(out.getvalue(), again.getvalue()).replace(str(tmp_path), "HERE"),
        "shown": capsys.readouterr().out,
    } == snapshot  # fmt: skip


def test_the_list_of_runs(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    main(["runs"])
    for number, told in enumerate(JOURNALS.values()):
        shelved(told, f"2026010{number}-000000-x-000{number}")
    shelved([], "20260201-000000-x-none").journal.write_bytes(b"no journal")
    main(["runs"])
    main(["runs", "--json"])
    assert capsys.readouterr().out == snapshot


def test_logs_of_a_run(capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion) -> None:
    run = shelved([*BEGUN[:7]])
    codes = [main(["logs", "up"]), main(["logs", "up", "--json"]), main(["logs", "\x1b[31mred"])]
    run.log("cand").parent.mkdir()
    run.log("cand").write_text("one\ntwo\n")
    run.attempt_log("bench", 2).write_text("second\n")
    run.attempt_log("bench", 1).write_text("first\n")
    codes += [main(["logs", name, "--lines", "1"]) for name in ("cand", "bench", "gone")]
    out, err = capsys.readouterr()
    assert [codes, out, err] == snapshot


# -- plans -----------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is always the same, on which nothing listens and one guard would act."""
    machine = Machine(ram_total=64 << 30, swap_total=8 << 30)
    breached = [limits.Finding("RAM available 1 GiB", True), limits.Finding("VRAM", False)]
    monkeypatch.setattr(plan_text, "look", lambda **_: machine)
    monkeypatch.setattr(spec, "default_memory", lambda: 56 << 30)
    monkeypatch.setattr(limits, "findings", lambda made, **_: breached)
    monkeypatch.setattr(cutover, "wide", lambda port: True)
    monkeypatch.setattr(cutover, "_cannot_listen", lambda door: "taken" if "[" in door else "")


@pytest.mark.usefixtures("here")
def test_a_plan(plan: MakePlan, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    steps = [f"{{id: {name}, {step}}}" for name, step in cases.EVERY_STEP.items()]
    gate = "{id: g, gate: [{metric: benchmark.tok_s, go: '>= 20', no_go: '< 10'}, "
    gate += "{metric: benchmark.ttft_s, go: '<= 2s'}, {metric: gpu.peak_used, of: sum, "
    gate += "no_go: '> 9GB'}], outcomes: {go: soak},"
    made = plan(*steps, f"{gate} on_no_go: rollback}}", restore_s=74.0)
    text = "\n".join(plan_text.lines(made))
    assert text.replace(str(tmp_path), "HERE") == snapshot


def test_outages_in_a_plan(plan: MakePlan, snapshot: SnapshotAssertion) -> None:
    told = {}
    for name, (steps, restore_s) in cases.OUTAGES.items():
        made = plan(*steps, restore_s=restore_s)
        shown = [f"{step.id}: {step.effects[0] if step.effects else ''}" for step in made.steps]
        told[name] = [*shown, plan_text.outage_words(made)]
    assert told == snapshot


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("more", ["", ", then: stay, listen: '::'", ", port: 9, watch: 1m"])
def test_a_plan_with_a_cutover(
    plan: MakePlan, more: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    up = "{id: up, service: {start: cand}}"
    made = plan(up, f"{{id: cut, cutover: {{to: cand{more}}}}}", "{id: n, note: x}")
    assert "\n".join(plan_text.lines(made)).replace(str(tmp_path), "HERE") == snapshot


@pytest.mark.usefixtures("here")
def test_what_stands_above_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """And what of it a program reads; the second as it differs from the first."""
    monkeypatch.delenv("OMNI_TEST_TOKEN", raising=False)
    site, book = tmp_path / "site.yaml", tmp_path / "book.yaml"
    book.write_text(cases.BOOK)
    fault = Finding("book.yaml", 1, 2, "split-mode-graph-moe", Severity.ERROR, "no", "fix")
    told, before = [], ""
    for baseline in cases.BASELINES:
        site.write_text(f"schema: omni.site/v1\nname: ws\nbaseline: {{{baseline}}}\n")
        made = make_plan(load_playbook(book, planning=True, pinned=True), load_site(site))
        if before:
            monkeypatch.setattr(plan_text, "look", lambda **_: Machine())
            made = replace(made, rehearsal={"notes": ["image a → b"], "fault": "slow"})
        text = "\n".join(plan_text.lines(made, [fault, replace(fault, severity=Severity.INFO)]))
        text += "\n" + json.dumps(plan_text.as_json(made), indent=1, ensure_ascii=False)
        text = text.replace(str(tmp_path), "HERE")
        told.append(changes(before, text))
        before = text
    assert told == snapshot


def test_what_to_do_about_an_image(
    plan: MakePlan, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    build = "{id: make, build: {context: ctx, dockerfile: D, tag: 'omni/x:1'}}"
    made = plan(build)
    hints = (pull_hint("omni/x:1"), pull_hint("omni/x:2"), "look at the log", "")
    assert [made.fitting(hint).replace(str(tmp_path), "HERE") for hint in hints] == snapshot


def test_what_makes_a_promotion_last(snapshot: SnapshotAssertion) -> None:
    assert [cases.promoted(runs) for runs in cases.PROMOTED] == snapshot


# -- guards, soaks, refusals -----------------------------------------------------------------------


def test_words_of_a_guard(snapshot: SnapshotAssertion) -> None:
    kinds = ("watching", "warn", "act", "clear", "restarted", "gone", "breach", "odd")
    events = [GuardEvent(1.0, kind, "full\x07 soon") for kind in kinds]
    events.append(GuardEvent(1.0, "breach", "nobody", Breach(cause="lease")))
    gaps = [Breach(gap_s=gap) for gap in (0.25, 0.1, 0.02, None)]
    limit = {"metric": "host.swap_used", "above": 1.0, "for_s": 0.5}
    assert {
        "limits": [guard.limit_words(one) for one in cases.LIMITS],
        "events": [guard.event_words(one) for one in events],
        "killed": [guard.killed_words(row, s) for row in cases.KILLED for s in (0.0, 0.5)],
        "held": [guard.held_words(one) for one in cases.HELD],
        "leases": [guard.lease_terms(lease_s) for lease_s in (0.0, 1800.0)],
        "gaps": [guard.gap_words(one) for one in gaps],
        "deeds": guard.deeds(Breach(killed=cases.KILLED[:1], gap_s=0.25, limit=limit)),
    } == snapshot  # fmt: skip


def test_words_of_guards_that_do_not_fit_now(held: Look, snapshot: SnapshotAssertion) -> None:
    told = [
        held(limit, cards, outage=outage) for limit, cards in cases.NOW for outage in (True, False)
    ]
    assert [[f"{one.words}: {one.stops}" for one in found] for found in told] == snapshot


def test_words_of_a_soak(snapshot: SnapshotAssertion) -> None:
    told = {}
    for name, made in cases.soaks():
        now = made.t
        told[name] = [
            live_words(made, now, 3600.0), live_words(made, now + 100, 3600.0),
            live_words(made, now, 3600.0, 15.0), live_words(made, 3700.0, 3600.0),
            live_words(made, 3700.0, 3600.0, 15.0), summary(made),
        ]  # fmt: skip
    assert told == snapshot


def test_what_is_refused(snapshot: SnapshotAssertion) -> None:
    """Each verb in each state, and for each reason to stand still."""
    places = [(state, "") for state in RunState] + [(RunState.PAUSED, why) for why in Pause]
    assert {
        f"{state} {why}".strip(): [refusal(verb, state, why) or verb for verb in [*VERBS, "odd"]]
        for state, why in places
    } == snapshot


def test_what_the_desk_refuses(snapshot: SnapshotAssertion) -> None:
    told = {}
    for name, where in cases.DESKS.items():
        for verb in ("approve", "skip", "retry", "abort", "pause", "explode"):
            for why in ("", "because"):
                made = cases.control(**where)
                told[f"{name}: {verb} {why}"] = made.ask(Verb(verb, "op", why, {}), {})
        seen = {"step": "x", "attempt": "1", "evidence": None}
        told[f"{name}: seen"] = [
            cases.control(**where).ask(Verb("approve", "op", "why", {}), {key: value})
            for key, value in seen.items()
        ]
    assert told == snapshot
