"""The table: strict as data, each row with a source and a day, and the operator's lessons in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import InvalidFile
from console.fit.machine import Card, Machine
from console.preflight import compatibility
from console.preflight.compatibility import TABLE, Question, check, table
from console.preflight.finding import Finding, Level

GIB = 1 << 30
PRO, SMALL = (
    Card("PRO 6000", "a", 96 * GIB, compute=(12, 0)),
    Card("5090", "b", 32 * GIB, None, (12, 0)),
)
ZEN5 = frozenset(["avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16"])
XEON = ZEN5 | {"amx_tile", "amx_int8", "amx_bf16"}
WORKSTATION = Machine(cards=(PRO, SMALL), cpu_flags=ZEN5)


def of(question: Question, about: str) -> list[Finding]:
    title = f"{question.engine}, {about}"
    return [one for one in check(question) if f"{one.title} ".startswith(f"{title} ")]


def test_every_row_says_where_it_is_from() -> None:
    rows = table()
    for row in (*rows.rules, *rows.cards, *rows.drivers):
        assert row.source
        assert re.fullmatch(r"2026-\d\d-\d\d", row.date)
    assert all(rule.words for rule in rows.rules)
    assert all(rule.hint for rule in rows.rules if rule.level == "fail" and "belongs" not in
               rule.words and rule.about not in ("method", "format"))  # fmt: skip


def test_the_engines_and_the_lessons_are_in_it() -> None:
    rows = table()
    assert {"sglang", "vllm", "kt-kernel", "ktransformers", "exllamav3", "ik_llama.cpp",
            "llama.cpp"} <= set(rows.engines())  # fmt: skip
    cited = {lesson for rule in rows.rules for lesson in rule.lessons}
    cited |= {lesson for row in rows.cards for lesson in row.lessons}
    assert cited >= {
        "F-001", "F-002", "F-003", "F-008", "F-009", "F-011", "F-012", "F-013", "F-018", "F-019",
        "F-020", "F-022", "F-023", "F-024", "F-025", "F-026", "F-027", "P-005", "S-001", "S-003",
        "S-008", "S-009", "S-013", "S-014",
    }  # fmt: skip


def test_it_lies_beside_the_module() -> None:
    """So that an installed package has it: pyproject names the folder's *.yaml."""
    assert TABLE.parent == Path(compatibility.__file__).parent


@pytest.mark.parametrize("format_", ["AMXINT8", "AMXINT4", "MOE_INT8"])
def test_gguf_is_no_input_for_the_converter(format_: str) -> None:
    (found,) = of(Question("kt-kernel", "gguf", "deepseek2", method=format_), "format")
    assert found.level is Level.FAIL
    (other,) = of(Question("kt-kernel", "gguf", "deepseek2", method="LLAMAFILE"), "format")
    assert other.level is Level.WARN, "its CPU side does read GGUF"


def test_amx_kernels_on_a_processor_without_amx() -> None:
    (found,) = of(Question("kt-kernel", method="AMXINT8", machine=WORKSTATION), "method")
    assert (found.level, found.lessons) == (Level.FAIL, ("S-013",))
    assert "AMD" in found.words
    xeon = Machine(cpu_flags=XEON)
    (good,) = of(Question("kt-kernel", method="AMXINT8", machine=xeon), "method")
    assert good.level is Level.OK
    for machine in (None, Machine()):
        (unknown,) = of(Question("kt-kernel", method="AMXINT8", machine=machine), "method")
        assert unknown.level is Level.UNKNOWN


MET = [
    (Question("exllamav3", "exl3", "deepseek2"), "architecture", Level.WARN, "F-026"),
    (Question("exllamav3", "exl3", "Qwen3MoeForCausalLM"), "architecture", Level.OK, "F-026"),
    (Question("sglang", "gguf", "deepseek2"), "format", Level.FAIL, ""),
    (Question("sglang", "safetensors", "DeepseekV3ForCausalLM", "int8"), "quantization",
     Level.WARN, "F-022"),
    (Question("vllm", "safetensors", "deepseek_v3", "fp8", machine=WORKSTATION),
     "quantization", Level.FAIL, "S-013"),
    (Question("kt-kernel", "safetensors", "deepseek_v3", "fp8", "AMXINT8"), "quantization",
     Level.FAIL, "F-019"),
    (Question("ktransformers", "gguf", "deepseek2", "ud"), "quantization", Level.FAIL,
     "F-009"),
    (Question("ktransformers", "gguf", "deepseek2"), "imports", Level.WARN, "F-023"),
    (Question("ktransformers", architecture="deepseek32", machine=WORKSTATION),
     "architecture", Level.FAIL, "F-009"),
    (Question("ik_llama.cpp", "gguf", "deepseek2", split="graph", machine=WORKSTATION),
     "split", Level.FAIL, "F-024"),
    (Question("ik_llama.cpp", "gguf", "llama", machine=WORKSTATION), "cards", Level.WARN,
     "F-002"),
    (Question("dynamo", machine=WORKSTATION), "cards", Level.FAIL, "F-025"),
    (Question("llama.cpp", "safetensors", "deepseek_v3"), "format", Level.FAIL, ""),
    (Question("llama.cpp", "gguf", "deepseek2", "q3_k_m", machine=WORKSTATION), "compute",
     Level.OK, "S-001"),
]  # fmt: skip


@pytest.mark.parametrize(("question", "about", "level", "lesson"), MET)
def test_what_the_operator_met(question: Question, about: str, level: Level, lesson: str) -> None:
    found = of(question, about)
    assert found[0].level is level, found
    assert not lesson or lesson in found[0].lessons
    assert found[0].source


def test_equal_cards_are_no_unequal_cards() -> None:
    twins = Machine(cards=(PRO, PRO), cpu_flags=ZEN5)
    assert of(Question("dynamo", machine=twins), "cards") == []
    unknown = Machine(cards=(PRO, Card("?")))
    (found,) = of(Question("dynamo", machine=unknown), "cards")
    assert found.level is Level.UNKNOWN


def test_what_no_rule_speaks_of_is_unknown() -> None:
    question = Question("sglang", "safetensors", "brand_new", "int3", machine=WORKSTATION)
    silent = {one.title for one in check(question) if one.level is Level.UNKNOWN}
    assert silent >= {"sglang, architecture brand_new", "sglang, quantization int3"}
    (nobody,) = check(Question("tgi"))
    assert nobody.level is Level.UNKNOWN
    assert "sglang" in nobody.words


def test_a_refusal_that_could_not_be_tried_is_said() -> None:
    (found,) = of(Question("kt-kernel", "gguf", "deepseek2"), "method")
    assert found.level is Level.UNKNOWN


def test_an_objection_leaves_no_ok_beside_it() -> None:
    found = of(Question("vllm", "safetensors", "deepseek_v3", "fp8", machine=WORKSTATION),
               "quantization")  # fmt: skip
    assert Level.OK not in {one.level for one in found}


@given(
    st.sampled_from([*table().engines(), "other"]),
    st.lists(st.text(max_size=20), min_size=5, max_size=5),
)
def test_any_question_has_an_answer(engine: str, texts: list[str]) -> None:
    found = check(Question(engine, *texts, machine=WORKSTATION))
    assert found
    assert all(one.words and one.title for one in found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("level: ok", "level: fine", "'level'"),
        ("schema: omni.compatibility/v1", "schema: omni.compatibility/v9", "schema"),
        ("date: \"2026-01-25\"", "date: soon", "'date'"),
        ("lessons: [F-008]", "lessons: [F-8]", "F-8"),
        ("when: {}", "when: {colour: [red]}", "unknown key 'colour'"),
        ("rules:", "rules: &a", "anchor"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "compatibility.yaml"
    path.write_text(TABLE.read_text().replace(old, new, 1))
    with pytest.raises(InvalidFile, match=re.escape(words)):
        table(path)
