"""What a server says is looked at in every run: garbage is void, named, and kept to be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.bench.answers import MAX_ANSWER, MAX_KEPT, Answers, Exchange, kept
from console.bench.benchmark import Benchmark, Protocol
from console.bench.client import ChatRequest
from console.bench.sample import Sample
from console.bench.sse import Reply
from console.runtime.answers.sanity import Garbled, Kind
from tests.bench.scripted import (
    DONE,
    FINISH,
    ROLE,
    Answer,
    Handler,
    answers,
    delta,
    garbage,
    reply,
    scripted,
    sse,
    streams,
    usage,
)
from tests.testbed import instruct
from tests.waiting import some

TOKENS = 64
QUICK = Protocol(max_tokens=TOKENS, runs=6, max_runs=6, prompts=("Say it.", "Say more."))
GOOD = streams(reply(TOKENS))


def whole(text: str, *, tokens: int = TOKENS, finish: bytes = FINISH, **more: str) -> list[bytes]:
    """A whole stream of one text, which the server counts as `tokens`."""
    end = sse({"choices": [], "usage": usage(tokens)})
    return [ROLE, delta(content=text, **more), finish, end, DONE]


def exchange(prompt: str, text: str) -> Exchange:
    reply = Reply(answer=text, raw_text=text, finish_reason="stop", completion_tokens=TOKENS)
    return Exchange(prompt, ChatRequest(prompt), reply, Sample())


def by_leave(goes_on: list[bytes], ends: list[bytes]) -> Answer:
    """A server that says one thing where it may not end its answers, and another where it may."""

    def answer(handler: Handler) -> None:
        forced = handler.server.requests[-1].get("ignore_eos")
        handler.stream(goes_on if forced else ends)

    return answer


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\n" * TOKENS, Kind.BLANK),
        ("G" * TOKENS, Kind.CHARACTER),
        ("\ufffd" * TOKENS, Kind.REPLACEMENT),
        ("the " * TOKENS, Kind.WORD),
        ("<unk>" * TOKENS, Kind.SPECIAL),
        ("0." * TOKENS, Kind.LOOP),
        ("@#$%" * 3, Kind.SYMBOLS),
        ("", Kind.EMPTY),
    ],
)
def test_a_server_that_answers_garbage_has_no_figure(text: str, kind: Kind) -> None:
    with scripted(streams(whole(text))) as server:
        result = Benchmark(server.url, QUICK).run()
    assert len(result.runs) == 3, "three in a row are enough"
    assert {void["reason"] for void in result.voids} == {f"garbled: {kind}"}
    assert result.metrics["tok_s"].value is None
    found = some(result.garbled)
    assert found.mostly
    assert found.count == found.of == 4, "the warm-up was looked at, too"
    assert str(found) in result.flags
    assert [answer.garbled.startswith(kind) for answer in result.answers] == [True, True]
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Paris\n" * 20, "Paris"),
        ("The capital of France is Paris.\n" * 9, "The capital of France is Paris."),
        ("8" * 40, "8"),
    ],
)
def test_a_sane_answer_that_may_not_end_is_asked_for_once_more(text: str, ends: str) -> None:
    finish = delta(finish="stop")
    server_says = by_leave(whole(text), whole(ends, tokens=2, finish=finish))
    with scripted(server_says) as server:
        result = Benchmark(server.url, QUICK).run()
    assert (result.voids, result.garbled) == ([], None)
    assert [(answer.answer, answer.finish) for answer in result.answers] == [(ends, "stop")] * 2
    questions = [body for body in server.requests if "messages" in body]
    prompts = [body["messages"][0]["content"] for body in questions]
    assert ["ignore_eos" in body for body in questions] == [True, False] * 7
    assert prompts[::2] == prompts[1::2], "with the very same prompt"
    assert [answer.tokens for answer in result.answers] == [2, 2]


def test_white_space_to_the_limit_is_garbled_where_it_is_free_to_end() -> None:
    text = "I am ready, and this is what I have to say. " + "\n" * 216
    with scripted(streams(whole(text))) as server:
        result = Benchmark(server.url, QUICK).run()
    assert {void["reason"] for void in result.voids} == {f"garbled: {Kind.BLANK_TAIL}"}
    ends = whole("I am ready.", tokens=4, finish=delta(finish="stop"))
    with scripted(by_leave(whole(text), ends)) as server:
        assert Benchmark(server.url, QUICK).run().voids == []


def test_garbage_now_and_then_is_none_the_better_for_a_sane_answer() -> None:
    ends = whole("Paris.", tokens=2, finish=delta(finish="stop"))
    with scripted(by_leave(whole("GGGGGGGG" * 8), ends)) as server:
        result = Benchmark(server.url, QUICK).run()
    assert {void["reason"] for void in result.voids} == {f"garbled: {Kind.CHARACTER}"}


@pytest.mark.parametrize("text", ["G" * TOKENS, "0" * TOKENS, "A" * TOKENS, "de " * TOKENS])
def test_garbage_to_the_limit_is_garbage_though_the_server_calls_it_ended(text: str) -> None:
    """It says `stop` of everything; letters of bases, digits and lines may end by themselves."""
    with scripted(streams(whole(text, finish=delta(finish="stop")))) as server:
        result = Benchmark(server.url, QUICK).run()
    assert len(result.voids) == len(result.runs) == 3
    assert some(result.garbled).mostly


@pytest.mark.parametrize("text", ["G" * 40, "no " * 30])
def test_one_thing_again_and_again_answers_no_question_of_ours(text: str) -> None:
    """Where it may end, it ends by itself, and it is as little of an answer."""
    ends = whole(text, tokens=40, finish=delta(finish="stop"))
    ours = Protocol(max_tokens=TOKENS, runs=3, max_runs=3)
    with scripted(by_leave(whole("G" * TOKENS), ends)) as server:
        assert some(Benchmark(server.url, ours).run().garbled).mostly


def test_one_garbled_run_is_void_and_the_others_count() -> None:
    script = [GOOD, GOOD, streams(garbage(TOKENS)), GOOD]
    with scripted(*script) as server:
        result = Benchmark(server.url, QUICK).run()
    assert (len(result.runs), result.metrics["tok_s"].n) == (6, 5)
    assert result.voids == [{"run": 2, "reason": f"garbled: {Kind.BLANK}"}]
    found = some(result.garbled)
    quote = r"\n" * 8
    assert str(found) == f"1 of 7 answers are garbled: {Kind.BLANK}: “{quote}…”"
    assert not found.mostly
    assert [bool(answer.garbled) for answer in result.answers] == [False, True]


def test_what_a_crowd_is_answered_is_looked_at_too() -> None:
    protocol = Protocol(max_tokens=TOKENS, runs=1, max_runs=1, warmup=0, levels=(2,))
    with scripted(GOOD, streams(garbage(TOKENS))) as server:
        result = Benchmark(server.url, protocol).run()
    assert result.voids == []
    assert result.levels[0].valid == 0
    assert some(result.garbled).count == result.levels[0].requests


def test_a_bare_text_that_goes_on_in_a_loop_is_no_garbage() -> None:
    loop = Reply(answer="once upon a time " * 40, finish_reason="length", completion_tokens=160)
    for endpoint, void in (("completions", ""), ("chat", f"garbled: {Kind.LOOP}")):
        looped = Exchange("p", ChatRequest("p", endpoint=endpoint), loop, Sample())
        assert Answers().judge(looped, lambda: loop).void == void


def test_reasoning_that_was_cut_off_is_sane_and_tool_calls_are_answers() -> None:
    calls = [{"index": 0, "id": "a", "function": {"name": "add", "arguments": '{"a": 1}'}}]
    for parts in (
        [ROLE, *[delta(reasoning_content=f"step {n}, ") for n in range(9)], FINISH],
        [ROLE, delta(tool_calls=calls), FINISH],
    ):
        end = sse({"choices": [], "usage": usage(TOKENS)})
        with scripted(streams([*parts, end, DONE])) as server:
            result = Benchmark(server.url, QUICK).run()
        assert (result.voids, result.garbled) == ([], None)


@pytest.mark.parametrize(
    ("expect", "why"),
    [("sea", ""), ("(?i)THE SEA IS", ""), ("Paris", "garbled"), ("(s+)+x", "garbled")],
)
def test_an_answer_has_to_match_what_is_expected(expect: str, why: str) -> None:
    protocol = Protocol(max_tokens=TOKENS, runs=1, max_runs=1, warmup=0, expect=expect)
    text = "the sea " + "s" * 40 + " and the sea is wide"
    with scripted(streams(whole(text))) as server:
        result = Benchmark(server.url, protocol).run()
    assert [void["reason"].partition(":")[0] for void in result.voids] == ([why] if why else [])
    assert (result.garbled is not None) == bool(why)


def test_short_prompts_that_are_measured_alone_are_not_judged() -> None:
    protocol = Protocol(max_tokens=TOKENS, runs=1, max_runs=1, warmup=0, prompt_lengths=(256,))
    with scripted(GOOD, streams(garbage(8))) as server:
        result = Benchmark(server.url, protocol).run()
    assert result.garbled is None


def test_few_and_short_pieces_are_kept_clean_and_without_secrets() -> None:
    text = "\x1b[2J key\n--api-key s3cretsecret " + "word after word " * 400
    one = kept("Say\nit", Reply(answer=text, reasoning="so", finish_reason="stop"), 9, None)
    assert (one.prompt, one.reasoning, one.finish, one.tokens) == ("Say it", "so", "stop", 9)
    assert len(one.answer) == MAX_ANSWER
    assert "s3cretsecret" not in one.answer
    assert one.answer.isprintable()
    many = Answers()
    for number in range(3 * MAX_KEPT):
        many.judge(exchange(f"prompt {number}", "a sane answer"))
    assert (many.judged, len(many.kept), many.garbled) == (3 * MAX_KEPT, MAX_KEPT, 0)


def test_a_garbled_answer_is_kept_before_a_sane_one() -> None:
    both = Answers()
    for text in ("sane", "<unk><unk>", "sane again"):
        both.judge(exchange("p", text))
    assert [answer.answer for answer in both.kept] == ["<unk><unk>"]


def test_a_server_that_fails_says_nothing_that_could_be_judged() -> None:
    with scripted(answers(500, b"GGGGGGGG")) as server:
        result = Benchmark(server.url, QUICK).run()
    assert result.garbled is None
    assert result.answers == []


def test_blank_answers_are_written_out() -> None:
    blank = Garbled(Kind.BLANK, "nothing but white space")
    assert kept("p", Reply(answer="\n \n"), 3, blank).answer == r"“\n \n”"


DIGITS = "The 11111111111111111111111111111111111111111 1"
LINES = "You are the wis\n\n\n\n\n\n\n\n\n A building and no more of it"
WORDS = "building and The Youc Youc Youc Youc Youc Youc Youc"
SONG = "Na na na na na na na, hey Jude, and more of the song"
SANE = "The sea is wide, and the tides come in twice a day"


def together(*texts: str, alone: bool = False, finish: str = "length") -> Answers:
    """A measurement with a prompt for each of these answers, which were free to end."""
    many = Answers()
    for number, text in enumerate(texts):
        reply = Reply(answer=text, raw_text=text, finish_reason=finish, completion_tokens=48)
        asked = "p" if alone else f"prompt {number}"
        request = ChatRequest(asked, free=True, max_tokens=48 if finish == "length" else 64)
        many.judge(Exchange(asked, request, reply, Sample(completion_tokens=48)))
    return many


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ((DIGITS, LINES, WORDS), 3), ((DIGITS, LINES, SANE), 2), ((LINES, SANE, WORDS, SANE), 2),
        ((DIGITS, SANE, SANE), 0), ((LINES, SANE, SANE), 0), ((SONG, DIGITS, SANE), 0),
        ((SONG, DIGITS), 0), ((WORDS, DIGITS, SONG), 3), ((SANE, SANE, SANE), 0),
    ],
)  # fmt: skip
def test_weak_signs_in_a_good_part_of_the_answers_are_strong(
    texts: tuple[str, ...], count: int
) -> None:
    many = together(*texts)
    assert (many.garbage.count if many.garbage else 0) == count
    assert sum(bool(one.garbled) for one in many.kept) == count
    assert many.garbled == 0, "none is by itself"


def test_answers_to_one_prompt_need_a_sign_that_the_prompt_does_not_explain() -> None:
    assert together(DIGITS, DIGITS, DIGITS, alone=True).garbage is None
    assert some(together(LINES, LINES, LINES, alone=True).garbage).mostly


def test_what_ended_by_itself_may_be_a_song_or_a_number() -> None:
    assert together(DIGITS, WORDS, SONG, finish="stop").garbage is None


def test_an_answer_with_many_signs_is_garbled_by_itself() -> None:
    many = together(DIGITS + "\n\n\n\n\n\n\n A----------------,,,---", SANE, SANE)
    assert some(many.garbage).count == many.garbled == 1


def test_a_measurement_of_weak_signs_has_no_figure() -> None:
    def answer(handler: Handler) -> None:
        asked = json.dumps(handler.server.requests[-1])
        handler.stream(whole(DIGITS if "Say it." in asked else LINES))

    with scripted(answer) as server:
        result = Benchmark(server.url, QUICK).run()
    assert result.metrics["tok_s"].value is None
    assert some(result.garbled).mostly
    assert {void["reason"] for void in result.voids} == {f"garbled: {Kind.DEGENERATE}"}


REAL: dict[str, Any] = {"max_tokens": 48, "runs": 3, "max_runs": 3, "warmup": 0}


@pytest.mark.parametrize("setting", [instruct.SANE, instruct.NEWLINES])
def test_a_real_model_is_told_from_the_same_one_garbled(instruct_model: Path, setting: str) -> None:
    prompts = ("What is the capital of France?", "Explain tides in simple terms.")
    with instruct.serving(setting) as url:
        result = Benchmark(url, Protocol(prompts=prompts, **REAL)).run()
    sane = setting == instruct.SANE
    assert (result.garbled is None) == sane
    assert result.metrics["tok_s"].n == (3 if sane else 0)
    assert ("Paris" in result.answers[0].answer) == sane


@pytest.mark.parametrize("setting", [instruct.SANE, instruct.NONSENSE])
def test_nonsense_in_words_needs_an_expectation(instruct_model: Path, setting: str) -> None:
    prompts = ("What is the capital of France?",)
    with instruct.serving(setting) as url:
        result = Benchmark(url, Protocol(prompts=prompts, expect="Paris", **REAL)).run()
    assert (result.garbled is None) == (setting == instruct.SANE)
