"""The table: strict as data, each row with a source and a day, and the operator's lessons in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.checks.preflight import compatibility
from console.checks.preflight.compatibility import TABLE, Question, check, table
from console.common.errors import Finding, InvalidFile, Level
from console.host.sample import Card, Machine

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


MET = [
    Question("exllamav3", "exl3", "deepseek2"),
    Question("exllamav3", "exl3", "Qwen3MoeForCausalLM"),
    Question("sglang", "gguf", "deepseek2"),
    Question("sglang", "safetensors", "DeepseekV3ForCausalLM", "int8"),
    Question("vllm", "safetensors", "deepseek_v3", "fp8", machine=WORKSTATION),
    Question("kt-kernel", "safetensors", "deepseek_v3", "fp8", "AMXINT8"),
    Question("ktransformers", "gguf", "deepseek2", "ud"),
    Question("ktransformers", "gguf", "deepseek2"),
    Question("ktransformers", architecture="deepseek32", machine=WORKSTATION),
    Question("ik_llama.cpp", "gguf", "deepseek2", split="graph", machine=WORKSTATION),
    Question("ik_llama.cpp", "gguf", "llama", machine=WORKSTATION),
    Question("dynamo", machine=WORKSTATION),
    Question("llama.cpp", "safetensors", "deepseek_v3"),
    Question("llama.cpp", "gguf", "deepseek2", "q3_k_m", machine=WORKSTATION),
]
"""What the operator met; the answers are held by the test of words."""


def test_equal_cards_are_no_unequal_cards() -> None:
    twins = Machine(cards=(PRO, PRO), cpu_flags=ZEN5)
    assert of(Question("dynamo", machine=twins), "cards") == []
    unknown = Machine(cards=(PRO, Card("?")))
    (found,) = of(Question("dynamo", machine=unknown), "cards")
    assert found.level is Level.UNKNOWN


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
