"""A server's fingerprint and the comparison with it: what is told apart, what is noise, and in
which words."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.bench.contract.answer import OFFERED, REFUSED, SILENT, UNKNOWN, Answer, unfit
from console.bench.contract.ask import KINDS, Case, ask, look
from console.bench.contract.compare import Comparison, compare
from console.bench.contract.fingerprint import (
    CaseAnswers,
    Fingerprint,
    fingerprint_of,
    read_fingerprint,
    take,
)
from console.cli import main
from console.common.errors import InvalidFile, ServiceError, UsageError
from console.config.contract import CaseModel, contract_cases, load_cases
from tests.bench.talking import Talk, talking

SHIPPED = contract_cases()
ENGINES = ("llama.cpp", "vllm", "sglang")


def taken(talk: Talk, repeat: int = 2) -> Fingerprint:
    with talking(talk) as url:
        return take(url, SHIPPED, repeat=repeat, now=lambda: 7.0)


def compared(before: Talk, after: Talk) -> Comparison:
    return compare(taken(before), taken(after))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_server_is_the_same_as_itself_and_survives_json(engine: str) -> None:
    first, again = taken(Talk(engine)), taken(Talk(engine))
    assert first.unsteady == []
    kept = fingerprint_of(json.loads(json.dumps(first.to_json())))
    assert kept.to_json() == first.to_json()
    found = compare(kept, again)
    assert (found.same, found.compared) == (True, len(SHIPPED))
    assert found.words() == "same tools; same schemas; same protocol; same answers"
    offered = [name for name, one in first.cases.items() if one.states == [REFUSED] * 2]
    assert offered == ([] if engine == "llama.cpp" else ["props"])
    assert first.cases["too-long"].values("form", "status") == [400, 400]


def test_each_reading_is_what_the_server_gave() -> None:
    found = taken(Talk())
    form = {name: dict(one.answers[0].form) for name, one in found.cases.items()}
    assert form["tool-parallel"] == {
        "calls": ["get_weather"] * 3, "finish": "tool_calls", "arguments": "fits",
        "ids": "one for each call",
    }  # fmt: skip
    assert form["tool-streamed"] == form["tool-required"]
    assert form["tool-none"] == {"calls": []}
    assert form["reasoning"] == form["reasoning-streamed"]
    assert form["reasoning"] == {"reasoning": "apart, as reasoning_content"}
    assert form["stop-word"] == {"finish": "stop", "stop word in the text": False}
    assert form["usage"]["completion tokens"] == "counted"
    assert form["usage"] == form["usage-streamed"]
    assert form["schema-streamed"] == {"object": "fits"}
    assert form["unknown-field"] == {"status": 200, "error": "none"}
    assert form["no-such-path"] == {"status": 404, "error": "not_found_error"}
    assert found.cases["haiku"].answers[0].tokens[0] == ("the ", 0.9048)
    assert (found.engine, found.build, found.at) == ("llama.cpp", "b1", 7.0)


PLAIN = Talk()
CHANGES = {
    "tools dropped": Talk(tools="refused"),
    "tools dropped ": Talk(tools="ignored"),
    "tool case tool-parallel changed": Talk(tools="one"),
    "6 of 7 tool cases changed (tool-auto, tool-required, tool-choice-of-two and 3 more)": Talk(
        tools="broken"
    ),
    "4 of 6 schema cases changed (schema-flat, schema-enum, schema-boolean and 1 more)": Talk(
        schema=False
    ),
    "chat template of props, prompt tokens of usage, prompt tokens of usage-streamed changed": Talk(
        template="{{ messages }}" * 9
    ),
    "reasoning of reasoning, reasoning of reasoning-streamed changed": Talk(thinks="text"),
    "finish of stop-word changed": Talk(stops=False),
    "usage of usage, usage of usage-streamed changed": Talk(usage=False),
    "status of unknown-field changed": Talk(unknown=422),
    "answers differ": Talk(words="the sea was calm "),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_changed_is_named(words: str) -> None:
    found = compared(PLAIN, CHANGES[words])
    assert words.strip() in found.words()
    assert not found.same


def test_another_text_is_told_by_the_first_token_that_differs() -> None:
    words = "the sea was calm "
    first = compared(PLAIN, Talk(words=words))
    [row] = [one for one in first.changes if one.case == "haiku"]
    assert (row.before, row.after) == ('token 3: "is " (p 0.74)', '"was " (p 0.74)')
    bare = compared(Talk(logprobs=False), Talk(logprobs=False, words=words))
    [row] = [one for one in bare.changes if one.case == "haiku"]
    assert (row.before[:20], row.after[:20]) == ("the sea is wide and ", "the sea was calm the")
    assert bare.words().startswith("same tools; same schemas; same protocol; ")
    share, n = bare.metrics()["answers_differ"]
    assert n > 20
    assert share == len(bare.differing) / n
    assert bare.metrics()["tools_changed"] == (0, 7)


def test_what_the_baseline_itself_varies_in_is_no_change() -> None:
    found = compared(Talk(varies=2), PLAIN)
    assert found.same, found.changes
    assert len(found.noisy) > 10
    noise = f"same answers (the baseline differs from itself in {len(found.noisy)})"
    assert found.words().endswith(noise)
    other = compared(PLAIN, Talk(varies=2))
    assert other.same, "it gave the baseline's words, too"
    assert other.words().endswith(f"differs from itself in {len(other.own_noise)} cases")


def _asked(
    *texts: str, digest: str = "d", state: str = OFFERED, kind: str = "answer"
) -> CaseAnswers:
    answers = tuple(Answer(state, content={"text": text}) for text in texts)
    return CaseAnswers(kind, digest, answers)


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [("aa", "aa", False), ("aa", "bb", True), ("aa", "bc", True), ("aa", "ba", False),
     ("ab", "cc", False), ("ab", "ab", False), ("a", "b", True)],
)  # fmt: skip
def test_a_change_is_what_was_always_so_and_never_is_now(
    before: str, after: str, differs: bool
) -> None:
    found = compare(
        Fingerprint(cases={"x": _asked(*before)}), Fingerprint(cases={"x": _asked(*after)})
    )
    assert found.same is not differs
    assert found.noisy == (("x",) if before == "ab" else ())


def test_another_question_is_not_compared() -> None:
    found = compare(
        Fingerprint(cases={"x": _asked("a"), "gone": _asked("a")}),
        Fingerprint(cases={"x": _asked("b", digest="other")}),
    )
    assert (found.compared, found.apart) == (0, ("x", "gone"))
    assert found.words() == "nothing to compare: no case was asked of both"
    assert found.metrics()["changed"] == (None, 0)
    assert found.metrics()["answers_differ"] == (None, 0)


def test_every_request_has_a_deadline_and_a_dead_server_ends_it() -> None:
    with talking(Talk()) as url:
        server = look(url)
    case = replace(SHIPPED[0], timeout_s=0.05)
    with talking(Talk(silent=True)) as url:
        assert ask(replace(server, url=url), case).state == SILENT
    refused = ask(server, case)
    assert (refused.state, "refused" in refused.why) == (SILENT, True)
    said: list[str] = []
    with pytest.raises(ServiceError, match="does not answer"):
        take(server.url, SHIPPED, say=lambda made, of, case: said.append(case))
    assert said == [case.id for case in SHIPPED[:3]]


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"schema": "omni.fingerprint/v2"}, {"schema": "omni.fingerprint/v1"},
     {"schema": "omni.fingerprint/v1", "at": 1e400, "cases": {}},
     {"schema": "omni.fingerprint/v1", "at": 10**400, "cases": {}},
     {"schema": "omni.fingerprint/v1", "at": 1, "cases": {"a": 1}},
     {"schema": "omni.fingerprint/v1", "at": 1, "cases": {"a": {"kind": "x", "answers": [{}]}}},
     {"schema": "omni.fingerprint/v1", "at": 1,
      "cases": {"a": {"kind": "answer", "answers": [{"state": "offered", "tokens": [[1, 2]]}]}}},
     {"schema": "omni.fingerprint/v1", "at": 1,
      "cases": {"a": {"kind": "answer", "answers": [{"state": "offered", "form": []}]}}}],
)  # fmt: skip
def test_a_file_that_is_no_fingerprint_is_refused(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is no fingerprint"):
        read_fingerprint(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [('{"a": 1}', ""), ("{", "not JSON"), ("[1]", "it is no object"), ("{}", "a is missing"),
     ('{"a": true}', "a is no integer"), ('{"a": 1, "c": 2}', "c is not in the schema"),
     ('{"a": 1, "b": "z"}', "b is none of the values"),
     ('{"a": 1, "d": [1, "x"]}', "d.1 is no integer")],
)  # fmt: skip
def test_an_object_is_held_against_its_schema(text: str, why: str) -> None:
    whole = {"type": "integer"}
    properties = {"a": whole, "b": {"enum": ["x"]}, "d": {"type": "array", "items": whole}}
    schema = {"type": "object", "properties": properties, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    assert unfit(text, schema) == why


OWN = "schema: omni.contract/v1\ncases:\n"


def test_own_cases_stand_beside_ours_and_in_place_of_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"{OWN}  - {{id: mine, answer: {{prompt: hi}}}}\n"
                    "  - {id: haiku, timeout: 9s, answer: {prompt: hello}}\n")  # fmt: skip
    found = {case.id: case for case in contract_cases(path)}
    assert len(found) == len(SHIPPED) + 1
    assert found["haiku"] == Case("haiku", "answer", {"prompt": "hello"}, 9.0)
    assert found["haiku"].digest != next(c for c in SHIPPED if c.id == "haiku").digest


def test_each_kind_has_a_model_and_a_row() -> None:
    keys = [key for key in CaseModel.model_fields if key not in ("id", "timeout")]
    page = (Path(__file__).parents[2] / "docs" / "reference" / "contract.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Cases")[2], re.MULTILINE)
    assert sorted(KINDS) == sorted(keys) == sorted(rows)


@pytest.mark.parametrize(
    ("row", "what"),
    [("{id: a}", "exactly one of tools, object"),
     ("{id: a, answer: {prompt: x}, stop: {prompt: x, words: [a]}}", "exactly one of tools"),
     ("{id: a, answer: {}}", "exactly one of prompt or messages"),
     ("{id: a, answer: {prompt: x, promt: y}}", "unknown key 'promt'"),
     ("{id: a, answer: {prompt: x}}\n  - {id: a, answer: {prompt: y}}", "is there twice"),
     ("{id: a, request: {raw: x, too_long: true}}", "exactly one of body, raw or too_long"),
     ("{id: a, grammar: {prompt: x, grammar: y, matches: '('}}", "a valid regular expression"),
     ("{id: a, answer: {endpoint: completions, messages: [{role: user, content: x}]}}",
      "completions takes a prompt")],
)  # fmt: skip
def test_cases_are_strict_and_say_where(row: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"{OWN}  - {row}\n")
    with pytest.raises(InvalidFile) as caught:
        load_cases(path)
    assert what in str(caught.value)
    assert f"{path}:" in str(caught.value)


def test_lint_reads_cases_as_strictly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"{OWN}  - {{id: a, answr: {{prompt: x}}}}\n")
    assert main(["lint", str(path)]) == 9
    assert f"{path}:3:13: unknown key 'answr' (hint: did you mean" in capsys.readouterr().out
    path.write_text(f"{OWN}  - {{id: a, answer: {{prompt: x}}}}\n")
    assert main(["lint", str(path)]) == 0


def test_the_command_compares_and_its_exit_code_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "kept.json")
    hostile = Talk(words="\x1b[31mred\x07 herring ", logprobs=False)
    with talking(Talk(logprobs=False)) as url, talking(hostile) as other:
        assert main(["check", "contract", url, "--save", kept]) == 0
        assert f"{len(SHIPPED)} cases, {len(SHIPPED)} offered" in capsys.readouterr().out
        assert main(["check", "contract", url, "--against", kept]) == 0
        assert "same tools; same schemas; same protocol; same answers" in capsys.readouterr().out
        assert main(["check", "contract", other, "--against", url, "--json"]) == 3
        told = json.loads(capsys.readouterr().out)["comparison"]
        assert (told["same"], told["metrics"]["tools_changed"]) == (False, 0)
        assert main(["check", "contract", other, "--against", kept]) == 3
        out = capsys.readouterr().out
        assert "the sea is wide" in out
        assert "\x1b" not in out
        assert "\x07" not in out
        empty = tmp_path / "empty.json"
        empty.write_text(json.dumps(Fingerprint(at=1.0).to_json()))
        assert main(["check", "contract", url, "--against", str(empty)]) == 4
        assert main(["check", "contract", url, "--against", str(tmp_path / "none")]) == 2
    assert main(["check", "contract", "localhost:1"]) == 2
    assert main(["check", "contract", url]) == 5


@pytest.mark.parametrize(
    ("words", "told", "shown"), [("\n", "blank", r"“\n\n"), ("G", "garbled", "GGGG")]
)
def test_the_worst_leads_and_white_space_is_written_out(words: str, told: str, shown: str) -> None:
    found = compared(Talk(logprobs=False), Talk(words=words, logprobs=False))
    lead = found.words().partition(";")[0]
    assert re.fullmatch(rf"(every answer|\d+ of \d+ answers) {told}", lead), found.words()
    texts = [one.after for one in found.changes if one.fact == "text"]
    assert any(shown in text for text in texts)
    assert not any("\ufffd" in text for text in texts)


KEYED = [
    # llama-server --api-key, vLLM and SGLang with a key, LiteLLM, nginx, and others in trouble
    (401, '{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}',
     "it wants a key: HTTP 401 Invalid API Key"),
    (401, '{"error":"Unauthorized"}', "Unauthorized"),
    (401, '{"error":{"message":"Authentication Error, No api key passed in.","type":"auth_error",'
     '"param":"None","code":"401"}}', "No api key passed in"),
    (401, "<html><head><title>401 Authorization Required</title></head></html>", "it wants a key"),
    (403, '{"detail":"Forbidden"}', "HTTP 403"), (407, "", "a proxy in front wants a key"),
    (429, '{"error":{"message":"Rate limit exceeded"}}', "Rate limit exceeded"),
    (302, "", "elsewhere"),
    (503, '{"error":{"message":"Loading model","code":503}}', "Loading model"),
    (500, '{"object":"error","message":"Internal server error"}', "HTTP 500"),
    (502, "<html><h1>502 Bad Gateway</h1></html>", "HTTP 502"),
    (400, '{"error":{"message":"API key not valid. Please pass a valid API key.","code":400}}',
     "HTTP 400 API key not valid"),
    (200, "<html><form>Please log in</form></html>", "it answers something else"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "words"), KEYED)
def test_a_server_that_refuses_for_another_reason_is_not_known(
    status: int, body: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "kept.json")
    with talking(Talk(closed=(status, body))) as url, talking(Talk()) as open_url:
        assert main(["check", "contract", url, "--save", kept, "--repeat", "1"]) == 4
        out = capsys.readouterr().out
        assert (words in out, "not known" in out) == (True, True)
        assert "not offered" not in out
        for pair in ([url, "--against", kept], [open_url, "--against", kept],
                     [url, "--against", open_url]):  # fmt: skip
            assert main(["check", "contract", *pair, "--repeat", "1"]) in (3, 4)
            out = capsys.readouterr().out
            assert (words in out, "same" in out) == (True, False), out
    found = compared(Talk(closed=(status, body)), Talk(closed=(status, body)))
    assert not found.same
    if status not in (200, 400, 500):
        assert {value for value, _ in found.metrics().values()} == {None}


def test_one_case_that_is_not_known_leaves_its_figures_open() -> None:
    first, again = taken(Talk()), taken(Talk())
    name = next(case.id for case in SHIPPED if case.kind == "tools")
    busy = CaseAnswers("tools", first.cases[name].digest, (Answer(UNKNOWN, "HTTP 429 busy"),) * 2)
    for before, after in (
        (first, replace(again, cases={**again.cases, name: busy})),
        (replace(first, cases={**first.cases, name: busy}), again),
    ):
        found = compare(before, fingerprint_of(json.loads(json.dumps(after.to_json()))))
        figures = {key: value for key, (value, _) in found.metrics().items()}
        assert figures == {
            "changed": None, "answers_differ": None, "tools_changed": None, "schema_changed": 0,
            "protocol_changed": 0,
        }  # fmt: skip
        assert found.words().startswith("1 case not known (HTTP 429 busy); tools not known; same s")
        assert found.apart == ()


LACKING = [
    # vLLM, llama.cpp, SGLang, Ollama
    (400, '\\"auto\\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be'
     " set"),
    (500, "tools param requires --jinja flag"), (501, "This server does not support tools."),
    (405, "Method Not Allowed"), (404, "Not Found"),
    (400, "registry.ollama.ai/library/gemma3:1b does not support tools"),
    (400, "Unrecognized request argument supplied: tools"), (422, "tool_choice: Extra inputs"),
]  # fmt: skip
OPEN = [
    (404, "The model `default` does not exist."), (404, "model 'm' not found"),
    (400, "This model's maximum context length is 64 tokens."), (400, "Bad Request"),
    (400, "Invalid model name passed in model=m"), (500, "CUDA error: an illegal memory access"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "words", "state"),
    [*((*row, REFUSED) for row in LACKING), *((*row, UNKNOWN) for row in OPEN)],
)
def test_what_is_not_offered_is_what_a_server_says_it_lacks(
    status: int, words: str, state: str
) -> None:
    case = next(case for case in SHIPPED if case.kind == "tools")
    body = f'{{"error": {{"message": "{words}"}}}}'
    with talking(Talk()) as url:
        server = look(url)
    with talking(Talk(closed=(status, body))) as url:
        found = ask(replace(server, url=url), case)
    assert (found.state, words.replace("\\", "") in found.why) == (state, True)
