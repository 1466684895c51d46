"""Loading a playbook: every problem in one pass, each with its place, nothing ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.errors import InvalidFile, UsageError
from console.playbook.load import load_playbook
from tests.playbook.book import HEAD, Book, steps_text

NOTE = steps_text("{id: a, note: hi}")
BENCH = "{id: b, benchmark: {service: cand, against: baseline}}"


def test_the_smallest_playbook(book: Book) -> None:
    loaded = book.load(NOTE)
    assert (loaded.name, loaded.base) == ("x", book.path.parent)
    assert [(phase, s.id, s.kind) for phase, s in loaded.steps()] == [("p", "a", "note")]


def test_the_digest_is_that_of_the_text(book: Book) -> None:
    first, second = book.load(NOTE), book.load(NOTE + "# another\n")
    assert first.digest == book.load(NOTE).digest != second.digest
    assert len(first.digest) == 64


def test_all_problems_in_one_pass(book: Book) -> None:
    found = book.problems(
        """\
        objectve: faster
        inputs:
          port: {type: int, min: 1024, default: 80}
          when: {type: date}
        services:
          cand: {process: {argv: []}, url: 'http://127.0.0.1:1', ready: {timeout: 15}}
        phases:
        - title: one
          steps:
          - {id: a, run: [echo, "${{ inputs.nope }}"]}
          - {id: a, note: again}
          - {id: b, script: "echo ${{ inputs.port }}"}
          - {id: c, service: {start: ghost}, timeout: 15}
          - {id: d, gate: [{metric: q.tok_s, go: '>= 20'}]}
          - {id: e, note: x, run: [y]}
          - {id: e, note: x}
        """
    )
    expected = [
        "4:1: unknown key 'objectve' (hint: did you mean 'objective'?)",
        "6:41: input 'port' default is 80; expected a whole number of at least 1024",
        "7:16: 'type' is 'date'",
        "9:26: 'argv' is []",
        "9:75: 'timeout' is 15; expected a duration with a unit",
        "13:25: unknown name 'inputs.nope' in ${{ }}",
        "14:10: step id 'a' twice (hint: line 13)",
        "15:21: ${{ inside a script body",
        "16:47: 'timeout' is 15; expected a duration with a unit",
        "17:29: nothing before this gate measures 'q.tok_s'",
        "18:5: a step has exactly one of run, ",
        "19:10: step id 'e' twice (hint: line 18)",
    ]
    missing = [want for want in expected if not any(line.startswith(want) for line in found)]
    assert missing == [], found
    places = [tuple(map(int, line.split(":")[:2])) for line in found]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("key", "near"),
    [("timout: 5m", "timeout"), ("on_failur: stop", "on_failure"), ("idempotant: true", "idemp")],
)
def test_an_unknown_key_suggests_the_known_one(book: Book, key: str, near: str) -> None:
    (said,) = book.step_problems(f"{{id: a, note: x, {key}}}")
    assert said.startswith(f"unknown key '{key.split(':')[0]}' (hint: did you mean '{near}")


def test_a_key_that_is_known_elsewhere_is_not_suggested_for_itself(book: Book) -> None:
    (said,) = book.step_problems("{id: a, note: x, container: y}")
    assert said == "unknown key 'container' (hint: it belongs to another part of the file)"


def test_an_unknown_key_that_is_near_nothing_has_no_suggestion(book: Book) -> None:
    assert book.step_problems("{id: a, note: x, zzzzzz: 1}") == ["unknown key 'zzzzzz'"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{id: a}", "a step has exactly one of run, script,"),
        ("{id: a, note: x, run: [y]}", "found run and note"),
        ("{id: A, note: x}", "'id' is 'A'"),
        ("{id: restore, note: x}", "step id 'restore' is the plan's own"),
        ("{note: x}", "missing key 'id'"),
        ("{id: a, note: x, timeout: 15}", "'timeout' is 15; expected a duration with a unit"),
        ("{id: a, note: x, timeout: 15min}", "expected a duration with a unit, like 90s"),
        ("{id: a, note: x, when: no}", "YAML 1.2 has only true and false"),
        ("{id: a, note: x, when: 'true'}", "expected true or false"),
        ("{id: a, note: x, where: {image: y}}", "where, env and cwd belong to run and script"),
        ("{id: a, note: x, env: {A: b}}", "where, env and cwd belong to run and script"),
        ("{id: a, note: x, outputs: {n: {pattern: '(x)'}}}", "outputs belong to run, script"),
        ("{id: a, note: x, on_no_go: stop}", "on_no_go, on_hold and outcomes belong to gate, "),
        ("{id: a, gguf: {}}", "file"),
        ("{id: a, gguf: {file: x, image: i, binary: b}}", "one of service, image or binary"),
        ("{id: a, checkpoint: {repo: o/n, loader: magic}}", "'loader' is 'magic'"),
        ("{id: a, checkpoint: {repo: o/n, service: s, args: [-c]}}", "not from both"),
        ("{id: a, imports: {modules: [x]}}", "exactly one of image or service"),
        ("{id: a, host: {compute: 12}}", "a compute capability in quotes"),
        ("{id: a, host: {driver: 580.95}}", "a driver's version like 580.126.09, in quotes"),
        ("{id: a, host: {ports: [70000]}}", "70000"),
        ("{id: a, download: {to: d}}", "of a checkpoint step, or of a repo"),
        ("{id: a, download: {of: b, to: d}}", "'b' is no checkpoint step before this one"),
        ("{id: a, gguf: {file: x, service: nobody}}", "unknown service 'nobody'"),
        ("{id: a, note: x, on_failure: abort}", "'on_failure' is 'abort'"),
        ("{id: a, note: x, retry: {attempts: 0}}", "'attempts' is 0"),
        ("{id: a, note: x, unless: {}}", "unless is exactly one of file or run"),
        ("{id: a, run: []}", "'run' is []"),
        ("{id: a, run: ls -l}", "'run' is 'ls -l'; expected a list"),
        ("{id: a, run: [true]}", "'0' is True; expected text; put it in quotes"),
        ('{id: a, run: ["a\\0b"]}', "expected text without a NUL byte"),
        ('{id: a, run: [x], env: {"A=B": c}}', "name 'A=B'; expected an environment variable's"),
        ('{id: a, run: [x], env: {"": c}}', "expected an environment variable's name"),
        ('{id: a, run: [x], env: {A: "\\0"}}', "expected text without a NUL byte"),
        ("{id: a, run: [x], where: {}}", "where is exactly one of service or image"),
        ("{id: a, run: [x], where: {service: cand, gpus: all}}", "need an image, not a service"),
        ("{id: a, run: [x], where: {image: i, memory: 24}}", "expected bytes with a unit"),
        ("{id: a, run: [x], where: {image: i, mounts: [x]}}", "expected SOURCE:/TARGET"),
        ("{id: a, run: [x], outputs: {n: {pattern: x}}}", "an output pattern needs one group"),
        ("{id: a, run: [x], outputs: {n: {pattern: '('}}}", "a valid regular expression"),
        ("{id: a, run: [x], outputs: {n: {pattern: '(a{99999999999})'}}}", "a valid regular"),
        ("{id: a, check: {}}", "a check is exactly one of http, output"),
        ("{id: a, check: {output: [x]}}", "output needs matches or not_matches"),
        ("{id: a, check: {file: x, matches: y}}", "matches and not_matches belong to output"),
        ("{id: a, check: {image: x, min_bytes: 1B}}", "min_bytes belongs to file"),
        ("{id: a, check: {file: x, platform: y}}", "platform belongs to image"),
        ("{id: a, check: {port_free: 65536}}", "'port_free' is 65536"),
        ("{id: a, check: {http: {url: 'file:///etc/passwd'}}}", "expected http://HOST:PORT"),
        ("{id: a, check: {http: {url: 'http://a:1/?x'}}}", "expected http://HOST:PORT"),
        ("{id: a, service: {}}", "a service step is exactly one of start, stop or wait"),
        ("{id: a, service: {start: cand, stop: cand}}", "exactly one of start, stop or wait"),
        ("{id: a, service: {start: ghost}}", "unknown service 'ghost'; expected one of cand"),
        ("{id: a, service: {stop: baseline}}", "unknown service 'baseline'"),
        ("{id: a, benchmark: {service: ghost}}", "expected one of baseline, cand"),
        ("{id: a, run: [x], where: {service: ghost}}", "unknown service 'ghost'"),
        ("{id: a, benchmark: {service: cand, runs: 0}}", "'runs' is 0"),
        ("{id: a, approval: {prompt: x, expires: 30}}", "expected a duration with a unit"),
        ("{id: a, soak: {service: cand, duration: 1h}, timeout: 59m}", "before its duration"),
    ],
)
def test_a_step_that_is_refused(book: Book, step: str, said: str) -> None:
    found = book.step_problems(step)
    assert [line for line in found if said in line] != [], found
    assert len(found) == 1, found


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("{metric: b.tok_s}", "a criterion needs go or no_go"),
        ("{metric: b.tok_s, go: 20}", "expected a comparison in quotes"),
        ("{metric: b.tok_s, go: '20'}", "expected a comparison, a number and a unit"),
        ("{metric: b.tok_s, go: '>= 20 GB'}", ">= 20 GB is bytes, but the metric is tok/s"),
        ("{metric: b.ttft_s, go: '<= 2'}", "<= 2 has no unit; expected a duration"),
        ("{metric: b.tok_s, go: '>= 0'}", "is always met, so the gate decides nothing"),
        ("{metric: b.tok_s, go: '< 0'}", "can never be met"),
        ("{metric: b.tok_s, no_go: '< 0'}", "can never be met"),
        ("{metric: b.tok_s, no_go: '>= 0'}", "is always met, so GO is impossible"),
        ("{metric: b.tok_s, go: '>= 20', no_go: '< 30'}", "overlap"),
        ("{metric: b.tok_s, go: '>= 20', min_samples: 0}", "'min_samples' is 0"),
        ("{metric: b.nope, go: '>= 20'}", "nothing before this gate measures 'b.nope'"),
        ("{metric: b.nope, go: '>= 20'}", "expected one of b.tok_s, b.decode_tok_s"),
        ("{metric: later.tok_s, go: '>= 20'}", "nothing before this gate measures"),
        ("{metric: tok_s, go: '>= 20'}", "'metric' is 'tok_s'"),
    ],
)
def test_a_gate_that_cannot_decide_is_refused(book: Book, gate: str, said: str) -> None:
    later = "{id: later, benchmark: {service: cand}}"
    (found,) = book.step_problems(BENCH, f"{{id: g, gate: [{gate}]}}", later)
    assert said in found


def test_the_word_of_another_format_is_understood(book: Book) -> None:
    found = book.step_problems("{id: a, run: [x], environment: {A: b}}")
    assert found[0].endswith("unknown key 'environment' (hint: did you mean 'env'?)")


def test_a_gate_without_criteria_is_refused(book: Book) -> None:
    assert "'gate' is []" in book.step_problems("{id: g, gate: []}")[0]


def test_a_gate_on_a_broken_step_is_not_reported_on_top_of_it(book: Book) -> None:
    broken = "{id: b, benchmark: {service: cand, runs: none}}"
    (said,) = book.step_problems(broken, "{id: g, gate: [{metric: b.tok_s, go: '>= 2'}]}")
    assert "'runs' is 'none'" in said


def test_outputs_can_be_judged_in_their_unit(book: Book) -> None:
    measured = "{id: m, run: [x], outputs: {size: {pattern: '([0-9]+)', unit: B}}}"
    book.steps(measured, "{id: g, gate: [{metric: m.size, go: '<= 20GiB'}]}")
    (said,) = book.step_problems(measured, "{id: g, gate: [{metric: m.size, go: '<= 20'}]}")
    assert "<= 20 has no unit; expected bytes with a unit" in said


@pytest.mark.parametrize("name", ["baseline", "../up", "a/b", "", "A", "a b", "x" * 42])
def test_service_names(book: Book, name: str) -> None:
    body = f"services: {{{name!r}: {{process: {{argv: [x]}}, url: 'http://a:1'}}}}\n" + NOTE
    (said,) = book.problems(body)
    assert said.startswith(f"4:12: name '{name}'; expected ")


def test_a_service_of_the_site_cannot_be_taken(book: Book) -> None:
    (said,) = book.problems(
        "services: {cand: {process: {argv: [x]}, url: 'http://a:1'}}\n" + NOTE,
        site_services=frozenset({"cand"}),
    )
    assert said == "4:12: service 'cand' is the site's"


def test_services_of_the_site_can_be_used(book: Book) -> None:
    loaded = book.steps("{id: a, service: {start: other}}", site_services=frozenset({"other"}))
    assert next(loaded.steps())[1].service.target == "other"


@pytest.mark.parametrize("kind", ["run: [x]", "script: x", "note: x", "report: {}"])
def test_what_finally_may_do(book: Book, kind: str) -> None:
    loaded = book.load(NOTE + f"finally: [{{id: z, {kind}}}]\n")
    assert [s.id for s in loaded.model.finally_] == ["z"]


@pytest.mark.parametrize(
    "kind",
    ["service: {start: cand}", "approval: {prompt: x}", "manual: {do: x}",
     "build: {context: x, tag: y}", "benchmark: {service: baseline}"],
)  # fmt: skip
def test_what_finally_may_not_do(book: Book, kind: str) -> None:
    rest = "services: {cand: {process: {argv: [x]}, url: 'http://a:1'}}\n"
    (said,) = book.problems(rest + NOTE + f"finally: [{{id: z, {kind}}}]\n")
    assert f"{kind.split(':')[0]} in finally; expected run, script or report" in said


def test_an_id_in_finally_is_an_id(book: Book) -> None:
    (said,) = book.problems(NOTE + "finally: [{id: a, note: x}]\n")
    assert "step id 'a' twice" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1:1: not a mapping"),
        ("- a\n", "1:1: not a mapping"),
        ("just words\n", "1:1: not a mapping"),
        (HEAD, "missing key 'phases'"),
        (HEAD + "phases: []\n", "4:9: 'phases' is []"),
        (HEAD + "phases:\n", "'phases' is None; expected a list"),
        (HEAD + "phases: [{title: p, steps: []}]\n", "'steps' is []"),
        (HEAD + "inputs: [a]\n" + NOTE, "4:9: 'inputs' is ['a']; expected a mapping"),
        (HEAD + NOTE + "title: again\n", "duplicate key 'title' (hint: first at line 3)"),
        (HEAD.replace("v1", "v2") + NOTE, "1:9: 'schema' is 'omni.playbook/v2'"),
        (HEAD.replace(": x", ": X y") + NOTE, "2:7: 'name' is 'X y'"),
        (HEAD + NOTE + "a: {<<: {b: 1}}\n", "unknown key 'a'"),
    ],
)
def test_a_file_that_is_no_playbook(book: Book, text: str, said: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        load_playbook(book.text(text, head=""))
    assert said in str(caught.value)
    assert "docs/playbooks.md" in caught.value.hint


def test_planning_refuses_everything_else(book: Book) -> None:
    assert "unknown key" in book.problems(NOTE + "nope: 1\n", planning=True)[0]


def test_an_unknown_input_on_the_command_line(book: Book) -> None:
    with pytest.raises(UsageError, match="unknown input 'prot'") as caught:
        book.load("inputs: {port: {type: int, default: 1}}\n" + NOTE, {"prot": "1"})
    assert "declares: port" in caught.value.detail


def test_the_shipped_playbook_loads() -> None:
    path = Path(__file__).parents[2] / "playbooks" / "demo.yaml"
    assert load_playbook(path, site_services=frozenset({"fast", "slow"})).name == "demo"
