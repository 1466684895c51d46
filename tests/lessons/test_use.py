"""Which lessons bear on a step, what a search finds first, drafts, and asking again by an argv."""

import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.config.lessons import use
from console.config.lessons import use as module
from console.config.lessons.registry import Lesson, Recheck, Registry, load_lesson
from console.config.lessons.use import Answer, DraftFacts, ask, bearing, recheck, search
from console.config.playbook.steps import KINDS
from tests.lessons.conftest import Put
from tests.waiting import until

BEARS = [
    ("run", "$ git clone --depth 1 https://x", "F-013"),
    ("run", "$ llama-server --split-mode graph -m x", "F-024"),
    ("script", "  | cmake -DGGML_CUDA_NO_VMM=ON", "F-003"),
    ("service", "$ docker compose up -d ktransformers-sglang", "F-022"),
    ("service", "$ docker compose up -d deepseek-r1-ik", "F-002"),
    ("service", "creates and starts a container of x: python -m sglang.launch_server", "F-022"),
    ("run", "$ docker exec -d foo bash", "S-012"),
    ("run", "$ pkill -f sglang", "D-003"),
    ("build", "$ docker build -t omni/x:nightly .", "F-011"),
    ("checkpoint", "works out whether it fits, loaded by: sglang, resident", "F-022"),
    ("checkpoint", "works out whether it fits, loaded by: kt-kernel, convert", "F-019"),
    ("gguf", "looks up a/b", "F-008"),
    ("run", "$ huggingface-cli download a/b", "S-010"),
    ("service", "$ ktransformers --model_path /m --gguf_path /m/UD-Q4_K_XL", "F-009"),
    ("run", "$ python convert_cpu_weights.py --input-path /m/x-Q4_K_M", "D-002"),
    ("imports", "imports a", "F-018"),
    ("service", "starts X --kv-cache-dtype   fp8_e4m3", "F-009"),
    ("run", "$ python convert_cpu_weights.py --input-type fp8", "F-019"),
]
BEARS_NOT = [
    ("run", "$ echo --depth 10"), ("run", "$ git clone --recursive https://x"),
    ("run", "$ llama-server --split-mode layer"), ("run", "$ nproc"),
    ("service", "creates and starts a container of llama:cpu: llama-server -m x.gguf"),
    ("benchmark", "9 runs of 256 tokens"), ("note", "hello"), ("run", "$ latest-news"),
    ("note", "no --split-mode graph here, and no sglang"), ("report", "to sglang.md"),
    ("check", "checks that the output of `swapon --show` matches nvme"),
    ("checkpoint", "works out whether it fits, loaded by: llama.cpp, mmap"),
    ("download", "downloads a/b, 16 workers"), ("build", "$ docker build -t omni/x:phase2 ."),
    ("service", "starts python3 -m http.server --directory /nvme/ik_llama.cpp/package"),
    ("service", "starts llama-server -m UD-Q4_K_XL.gguf"),
    ("run", "$ cmake -DGGML_CUDA_NO_VMM=OFF"),
    ("build", "$ docker build -t omni/ik-llama:sm120 ."),
]  # fmt: skip


def found(kind: str, *effects: str) -> list[str]:
    return [one.lesson for one in bearing(kind, list(effects), acts=KINDS[kind].acts)]


def test_it_bears() -> None:
    assert [row for row in BEARS if row[2] not in found(*row[:2])] == []


def test_it_does_not() -> None:
    assert [row for row in BEARS_NOT if found(*row)] == []


def test_words_may_be_on_two_lines_of_a_script() -> None:
    lines = ["$ sh -eu, a script of its own:", "  | git clone \\", "  |   --depth", "  |   1 x"]
    assert found("script", *lines) == ["F-013"]


def test_each_lesson_once() -> None:
    assert found("run", "$ git clone --depth 1 --shallow-submodules x") == ["F-013"]


MEANT = {
    "F-022": "F-022", "NO_VMM": "F-003", "shallow clone": "F-013", "hwloc": "F-015",
    "curl health": "F-021", "mem0 amd64": "F-006", "deepseek3_2": "F-008", "AVX512": "F-010",
    "nps1": "S-005", "split mode graph": "F-024", "What about vLLM": "F-001", "autogen": "A-002",
    "dynamo datacentre": "F-025", "shallow-clone-with-submodules": "F-013",
    "DEEPSEEK ExLlama": "F-026",
}  # fmt: skip


def test_the_first_is_the_one_that_was_meant(registry: Registry) -> None:
    assert {query: search(registry.lessons, query)[0].id for query in MEANT} == MEANT


def test_every_word_has_to_be_in_it(registry: Registry) -> None:
    assert search(registry.lessons, "mem0 nonsenseword") == []
    assert len(search(registry.lessons, "  ")) == len(registry.lessons)


def test_a_name_with_and_without_its_signs(registry: Registry) -> None:
    with_sign = {one.id for one in search(registry.lessons, "sm_120")}
    assert with_sign == {one.id for one in search(registry.lessons, "sm120")}
    assert {"F-001", "F-012"} <= with_sign


FOUND = DraftFacts(
    run="20261122-031245-demo-5750", day="2026-11-22", title="Is it faster? – NO-GO (retain)",
    playbook="demo", outcome="succeeded, NO-GO (retain)",
    symptom='Gate go said NO-GO: bench.tok_s 36.91 tok/s: "too slow".',
    candidates=("Attempted: x. Result: NO-GO.",), figures=("bench: tok_s 36.91 tok/s",),
    lines=("CUDA error: no kernel image",), lessons=("F-002", "F-777"),
)  # fmt: skip


def test_a_draft_loads_with_all_that_is_on_record(tmp_path: Path) -> None:
    lesson = load_lesson(use.write("F-028", use.drafted("F-028", FOUND), tmp_path))
    model = lesson.model
    assert (model.id, model.status, model.date) == ("F-028", "draft", "2026-11-22")
    assert model.symptom == FOUND.symptom
    assert model.cause == use.TO_BE_FOUND
    assert model.runs == [FOUND.run]
    assert model.evidence == [
        "run 20261122-031245-demo-5750: succeeded, NO-GO (retain)", "Attempted: x. Result: NO-GO.",
        "bench: tok_s 36.91 tok/s", "log: CUDA error: no kernel image",
    ]  # fmt: skip
    assert [link.to for link in model.links] == ["F-002"]


def test_the_next_look_is_proposed_a_quarter_later() -> None:
    assert "# due: 2027-02-21 " in use.drafted("F-028", FOUND)


def test_no_text_breaks_the_file(tmp_path: Path) -> None:
    for number, text in enumerate((
        "a: b # c", "- x", "\x1b[2Jboo\u202e", 'q"\\', "{[*&!|>%@`", "x\n  y: z", "", "yes",
        "\ud800", "é" * 700,
    ), 28):  # fmt: skip
        found = replace(FOUND, title=text, symptom=text, lines=(text,), playbook=text)
        one = f"F-{number:03d}"
        model = load_lesson(use.write(one, use.drafted(one, found), tmp_path)).model
        assert all(one.isprintable() for one in (model.title, model.symptom, *model.evidence))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = use.write("F-028", "first", tmp_path)
    with pytest.raises(FileExistsError):
        use.write("F-028", "second", tmp_path)
    assert path.read_text() == "first"
    (tmp_path / "F-029.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        use.write("F-029", "x", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


Outcome = tuple[int, str] | Exception


def asked(*argv: str, timeout: float = 60.0, **changes: str) -> Recheck:
    data = {"output": list(argv), "words": "w", **(changes or {"matches": "yes"})}
    return Recheck.model_validate(data).model_copy(update={"timeout": timeout})


@pytest.fixture
def lesson(put: Put) -> Lesson:
    return load_lesson(put("F-028"))


@pytest.mark.parametrize(
    ("outcome", "rule", "answer", "token"),
    [
        ((0, "yes"), {"matches": "^yes$"}, Answer.PASSED, ""),
        ((0, "no"), {"matches": "yes"}, Answer.CHANGED, "yes"),
        ((0, "no"), {"not_matches": "yes"}, Answer.PASSED, ""),
        ((0, "a\nyes\nb"), {"not_matches": "^yes$"}, Answer.CHANGED, "^yes$"),
        ((0, ""), {"matches": "yes"}, Answer.CHANGED, "yes"),
        ((3, "boom"), {}, Answer.FAILED, "3"),
        (TimeoutError(), {}, Answer.FAILED, "60 s"),
        (FileNotFoundError(2, "No such file or directory"), {}, Answer.FAILED, "x: No such file"),
        (ValueError("more than 5 bytes"), {}, Answer.FAILED, "5 bytes"),
    ],
)
def test_the_answer_is_in_the_output_and_none_is_no_news(
    lesson: Lesson, outcome: Outcome, rule: dict[str, str], answer: Answer, token: str
) -> None:
    def run(_: Recheck) -> tuple[int, str]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    found = recheck(lesson, asked("x", **rule), run)
    assert found.answer is answer
    assert token in found.words


def test_a_pattern_that_would_never_end_is_no_answer(lesson: Lesson) -> None:
    found = recheck(lesson, asked("x", matches="(a+)+$"), lambda _: (0, "a" * 60 + "b"))
    assert found.answer is Answer.FAILED
    assert "(a+)+$" in found.words


def test_nothing_is_a_shell(lesson: Lesson, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = recheck(lesson, asked("echo", f"yes; touch {mark} $(id)"))
    assert found.answer is Answer.PASSED
    assert found.lines == (f"yes; touch {mark} $(id)",)
    assert not mark.exists()


def test_hostile_output_is_shown_harmless(lesson: Lesson) -> None:
    found = recheck(lesson, asked("printf", r"yes \033[2J\r\n\302\233x"))
    assert all(line.isprintable() for line in found.lines)


def test_only_the_end_is_shown(lesson: Lesson) -> None:
    found = recheck(lesson, asked("seq", "100", matches="^42$"))
    assert (found.answer, found.lines) == (Answer.PASSED, ("96", "97", "98", "99", "100"))


def test_what_never_ends_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over as soon as the child of the child is there."""
    note, looks = tmp_path / "pid", itertools.count()

    def monotonic() -> float:
        begun = next(looks) == 0
        return 0.0 if begun or not note.exists() or not note.read_text() else 1000.0

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    with pytest.raises(TimeoutError):
        ask(asked("sh", "-c", f"sleep 300 & echo $! > {note}; echo up; wait"))
    child = int(note.read_text())
    until(lambda: ended(child), f"process {child} has ended")


def ended(pid: int) -> bool:
    """Whether it runs no more, be it reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_what_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    with pytest.raises(ValueError, match="100000 bytes"):
        ask(asked("yes"))


def test_it_reads_no_keyboard_and_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN_OF_MINE", "hunter2")
    code = "import os, sys; print(sys.stdin.read() == '', 'hunter2' in str(os.environ))"
    assert ask(asked(sys.executable, "-c", code)) == (0, "True False\n")
    assert os.environ["HF_TOKEN_OF_MINE"] == "hunter2"
