"""The table, strict as data; cards against kernels and drivers; and what the host has."""

import re
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.checks.preflight import Finding, Level, host, worst
from console.checks.preflight.compatibility import TABLE, Question, Table, check, compiled, table
from console.checks.preflight.gpu import parse_archs, runs_on
from console.common.errors import InvalidFile
from console.config.validation import load
from console.host import machine, process
from console.host.sample import Card, Machine
from console.models.sizing.serving.classes import listed
from console.models.sizing.serving.consistency import EVERY_LAYER
from console.runtime.docker import oneoff
from tests.ports import free_port
from tests.testbed.engine import Engine

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


@pytest.mark.parametrize(
    ("engine", "compute", "level"),
    [
        ("vllm", (12, 0), Level.FAIL), ("vllm", (12, 1), Level.FAIL), ("vllm", (10, 0), Level.FAIL),
        ("vllm", (10, 3), Level.FAIL), ("vllm", (11, 0), Level.FAIL), ("vllm", (9, 0), Level.OK),
        ("sglang", (11, 0), Level.FAIL),
        ("vllm", (8, 9), Level.OK), ("sglang", (12, 0), Level.FAIL), ("sglang", (9, 0), Level.OK),
        ("sglang", (10, 0), Level.FAIL), ("vllm", None, Level.UNKNOWN),
    ],
)  # fmt: skip
def test_kernels_of_int8_end_before_the_later_blackwell(
    engine: str, compute: tuple[int, int] | None, level: Level
) -> None:
    """vllm-project/vllm#25935, #54311: any model of int8 w8a8 dies at its start from sm_100 on."""
    machine = Machine(cards=(Card("?", compute=compute),), cpu_flags=ZEN5)
    question = Question(engine, "safetensors", "Qwen2ForCausalLM", "int8", machine=machine)
    assert of(question, "quantization")[0].level is level


@pytest.mark.parametrize(
    ("compute", "level", "words"),
    [
        ((7, 0), Level.UNKNOWN, "for compressed-tensors 8.0"),  # llm-compressor#1258
        ((7, 5), Level.UNKNOWN, "up to 0.11 refuse"),  # vllm#25022, vllm#26297
        ((8, 0), Level.OK, "has kernels"), ((12, 0), Level.OK, "has kernels"),
    ],
)  # fmt: skip
def test_older_releases_refuse_packed_integers_of_compressed_tensors(
    compute: tuple[int, int], level: Level, words: str
) -> None:
    here = Machine(cards=(Card("?", compute=compute),))
    found = of(Question("vllm", "safetensors", "qwen3", "w4a16", machine=here), "quantization")
    assert [(one.level, words in one.words) for one in found] == [(level, True)]


@pytest.mark.parametrize(
    ("quantization", "method", "converts", "level", "words"),
    [
        ("gptq", "GPTQ_INT4", False, Level.OK, "read as it is stored"),
        ("awq", "GPTQ_INT4", False, Level.FAIL, "along the other side"),
        ("gptq", "FP8", False, Level.FAIL, "No experts found"),
        ("awq", "RAWINT4", False, Level.FAIL, "No experts found"),
        ("gptq", "AMXINT4", True, Level.FAIL, "no GPTQ"),
        ("awq", "AMXINT8", True, Level.UNKNOWN, "another order"),
        ("awq", "AMXINT4", False, Level.UNKNOWN, "no report tells"),
        ("gptq", "LLAMAFILE", False, Level.UNKNOWN, "no report tells"),
    ],
)
def test_what_kt_kernel_makes_of_gptq_and_awq(
    quantization: str, method: str, converts: bool, level: Level, words: str
) -> None:
    """Its loader.py and convert_cpu_weights.py, 0.7.0."""
    here = Machine(cards=(Card("?", compute=(8, 9)),), cpu_flags=XEON)
    asked = Question("kt-kernel", "safetensors", "qwen3_moe", quantization, method, "", here,
                     converts)  # fmt: skip
    (found,) = of(asked, "quantization")
    assert (found.level, words in found.words) == (level, True), found.words


@pytest.mark.parametrize("method", ["RAWINT4", "GPTQ_INT4", "MXFP4", "FP8"])
@pytest.mark.parametrize("flags", [("avx2", "fma"), ("sse4_2",)])
def test_kt_kernel_has_kernels_for_avx2(method: str, flags: tuple[str, ...]) -> None:
    here = Machine(cpu_flags=frozenset(flags))
    found = of(Question("kt-kernel", "safetensors", method=method, machine=here), "method")
    assert any(one.level is Level.FAIL for one in found) is ("avx2" not in flags)


FLOORS = sorted({
    engine for rule in table().rules if rule.when.from_sm and rule.about == "quantization"
    for engine in rule.engine
})  # fmt: skip
KINDS = sorted({one for rule in table().rules for one in rule.when.quantization})


@pytest.mark.parametrize("compute", [(5, 2), (6, 1), (7, 0), (7, 2)])
@pytest.mark.parametrize("engine", [*FLOORS, "kt-kernel"])
def test_no_engine_with_a_floor_says_that_it_serves_cards_below_it(
    engine: str, compute: tuple[int, int]
) -> None:
    """vllm#19542 (6.1) and vllm#8626 (6.0); pascal-pkgs-ci#21, #23."""
    card = Card("?", total=32 * GIB, compute=compute)
    here = Machine(cards=(card,), cpu_flags=XEON)
    for family in ("deepseek_v3", "qwen3", "gemma2"):
        for kind in KINDS:
            for dtype in ("auto", "half", "float32"):
                asked = Question(engine, "safetensors", family, kind, "", machine=here, dtype=dtype)
                found = [one.level for one in check(asked)
                         if {"quantization", "compute"} & set(one.title.split())]  # fmt: skip
                assert {Level.FAIL, Level.UNKNOWN} & set(found), asked


@pytest.mark.parametrize(
    ("engine", "compute", "level"),
    [
        ("vllm", (6, 1), Level.FAIL), ("vllm", (7, 0), Level.UNKNOWN), ("vllm", (7, 5), Level.WARN),
        ("sglang", (7, 0), Level.FAIL), ("kt-kernel", (7, 5), Level.UNKNOWN),
        ("kt-kernel", (8, 0), Level.OK),
    ],
)  # fmt: skip
def test_the_floor_of_an_engine(engine: str, compute: tuple[int, int], level: Level) -> None:
    here = Machine(cards=(Card("?", compute=compute),), cpu_flags=XEON)
    asked = Question(engine, "safetensors", "qwen3_moe", "bf16", "BF16", machine=here)
    assert check(asked)[0].level is level


DENSE = [
    "phi3", "gemma", "gemma2", "glm4", "olmo2", "granite", "smollm3", "exaone4", "ernie4_5",
    "hunyuan_v1_dense", "mimo", "arcee", "apertus", "cohere2",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("family", DENSE)
def test_dense_families_are_known_where_the_engine_lists_their_class(
    engine: str, family: str
) -> None:
    members = next(names for names in table().families.values() if family in names)
    known = of(Question(engine, "safetensors", family, "bf16"), "architecture")[0].level is Level.OK
    assert known is bool(listed(engine).intersection(members))


@pytest.mark.parametrize("family", DENSE)
def test_a_layer_that_has_no_tensors_is_no_go_in_dense_families(family: str) -> None:
    assert family in EVERY_LAYER


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


def test_the_compiled_table_is_that_of_the_yaml(tmp_path: Path) -> None:
    """`make golden` writes it anew."""
    assert TABLE.with_suffix(".json").read_text("utf-8") == compiled()
    kept, path = TABLE.with_suffix(".json"), tmp_path / "compatibility.yaml"
    rows = load(Table, TABLE, "", "")
    assert table() == rows
    path.write_bytes(TABLE.read_bytes())
    for text in ("", "[]", '{"of": 1}', kept.read_text().replace('"level": "ok"', '"level": 1')):
        path.with_suffix(".json").write_text(text)
        table.cache_clear()
        assert table(path) == rows, "whatever lies there, the YAML counts"
    path.write_text(TABLE.read_text().replace("level: ok", "level: warn", 1))
    path.with_suffix(".json").write_text(kept.read_text())
    table.cache_clear()
    assert table(path) != rows, "a compiled table of another file is not used"


BIG = Card("PRO 6000", "GPU-1", compute=(12, 0))
ADA = Card("RTX 4090", "GPU-2", compute=(8, 9))
DARK = Card("?", "GPU-3")


LISTS: dict[str, tuple[str, ...] | None] = {
    "['sm_75', 'sm_80', 'sm_120']": ("sm_75", "sm_80", "sm_120"), "[]": (), "None": (), "": (),
    "sm_90a compute_90": ("sm_90a", "compute_90"), "Traceback (most recent call last)": None,
}  # fmt: skip


def test_pytorchs_list() -> None:
    assert {text: parse_archs(text) for text in LISTS} == LISTS


RUNS: list[tuple[list[str], tuple[int, int], bool]] = [
    (["sm_120"], (12, 0), True), (["sm_120"], (12, 1), True), (["sm_121"], (12, 0), False),
    (["sm_90", "sm_100"], (12, 0), False), (["sm_80"], (8, 9), True),
    (["sm_90a"], (9, 0), True), (["sm_120a"], (12, 1), False), (["sm_120f"], (12, 1), True),
    (["compute_90"], (12, 0), True), (["compute_120"], (9, 0), False),
    (["compute_90a"], (12, 0), False), (["nonsense"], (12, 0), False), ([], (12, 0), False),
]  # fmt: skip


def test_what_runs_where() -> None:
    assert [one for one in RUNS if runs_on(*one[:2]) is not one[2]] == []


DRIVERS: list[tuple[str, tuple[int, int] | None, str, str]] = [
    ("580.95.05", (13, 0), "6.8.0-45-generic", ""), ("570.86.15", (13, 0), "6.8.0", ""),
    ("525.60.13", (12, 8), "", ""), ("515.43", (12, 1), "", ""), ("580.95.05", None, "6.19.1", ""),
    ("580.126.09", None, "6.19.1", ""), ("580.95.05", (19, 0), "", ""), ("", (12, 8), "", ""),
    ("\x1b[31m", None, "", ""), ("580.95.05", None, "", "580.95.05"),
    ("580.95.05", None, "", "580.126"), ("590.1", None, "", "580.126.09"), ("", None, "", "580"),
]  # fmt: skip
"""Driver, CUDA, kernel, and the oldest driver that will do."""


DECIDES = {
    (): Level.OK, (Level.OK, Level.WARN): Level.WARN,
    (Level.WARN, Level.UNKNOWN, Level.OK): Level.UNKNOWN,
    (Level.UNKNOWN, Level.FAIL, Level.WARN): Level.FAIL,
}  # fmt: skip


def test_what_is_not_known_is_no_good_news() -> None:
    assert {of: worst(Finding(level, "t", "w") for level in of) for of in DECIDES} == DECIDES


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        found, odd = host.ports([taken, 70_000])
    assert found.level is Level.FAIL
    assert f"sport = :{taken}" in found.hint
    assert odd.level is Level.FAIL
    # one that is free now may be another test's in a moment: not all of them are
    assert Level.OK in {host.ports([free_port()])[0].level for _ in range(9)}
    assert host.ports([taken], "203.0.113.1")[0].level is Level.UNKNOWN


def test_a_real_disk(tmp_path: Path) -> None:
    found = host.disk(tmp_path / "not/yet", 1 << 60)
    assert found.level is Level.FAIL
    assert machine.disk_free(tmp_path) > 0


@pytest.mark.engine
def test_an_engine_that_answers(engine: Engine) -> None:
    found = host.engine(engine.host)
    assert found.level is Level.OK
    assert engine.host in found.words


@pytest.mark.engine
def test_compose_files(
    tmp_path: Path, engine: Engine, docker_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in docker_env.items():
        monkeypatch.setenv(name, value)
    good, bad, open_ = (tmp_path / f"{name}.yaml" for name in ("good", "bad", "open"))
    good.write_text("services:\n  a: {image: x}\n  b: {image: x, profiles: [p]}\n")
    bad.write_text("services:\n  a: {image: x, ports: {1: 2}}\n")
    open_.write_text("services:\n  a: {image: 'x:$TAG'}\n")
    at: tuple[dict[str, str], str] = ({}, engine.host)
    assert host.compose_file([good], *at)[0].level is Level.OK
    (broken,) = host.compose_file([bad], *at)
    assert broken.level is Level.FAIL
    assert "ports" in broken.words
    (unset,) = host.compose_file([open_], *at)
    assert unset.level is Level.WARN
    assert "$TAG" in unset.words
    (gone,) = host.compose_file([tmp_path / "missing.yaml"], *at)
    assert gone.level is Level.FAIL
    monkeypatch.setenv("PATH", str(tmp_path))
    (nobody,) = host.compose_file([good], *at)
    assert nobody.level is Level.UNKNOWN


MINE = oneoff.console_mark()[oneoff.CONSOLE_LABEL]
PID, START, BOOT = MINE.split(" ")


@pytest.mark.parametrize(
    ("mark", "removed"),
    [
        (MINE, False), (f"{PID} {int(START) + 1} {BOOT}", True), (f"{PID} {START} another", True),
        (f"{PID} None {BOOT}", True), ("", True), (None, True),
    ],
    ids=["it runs", "another process", "another boot", "no start", "empty", "none"],
)  # fmt: skip
def test_a_container_whose_console_runs_is_left_whatever_the_clock_says(
    mark: str | None, removed: bool
) -> None:
    """The wall clock of a machine may be set a day forward while a check runs."""
    labels = {} if mark is None else {oneoff.CONSOLE_LABEL: mark}
    row = {"Id": "c", "Created": time.time() - 86400, "Labels": labels}
    gone: list[str] = []

    def remove(container: str, **_: Any) -> None:
        gone.append(container)

    api = SimpleNamespace(containers=lambda **_: [row], remove_container=remove)
    client: Any = SimpleNamespace(api=api)
    assert oneoff.sweep(client) == len(gone) == removed
    assert process.boot_id() == BOOT


@pytest.mark.parametrize(
    ("architecture", "method", "level", "words"),
    [
        ("qwen3_5_moe", "BF16", Level.OK, "tutorial"),
        ("qwen3_5_moe_text", "FP8", Level.OK, "tutorial"),
        ("qwen3_next", "FP8", Level.OK, "list of models"),
        ("qwen3_5_moe", "AMXINT4", Level.OK, "its guide serves"),
        ("qwen3_5_moe", "AMXINT8", Level.UNKNOWN, "in loops"),
        ("qwen3_5_moe", "GPTQ_INT4", Level.UNKNOWN, "crash"),
        ("qwen3_5_moe", "LLAMAFILE", Level.UNKNOWN, "no report tells"),
        ("qwen3_next", "AMXINT4", Level.UNKNOWN, "no report tells"),
    ],
)
def test_kt_kernel_serves_qwen_with_states_by_the_methods_of_its_documents(
    architecture: str, method: str, level: Level, words: str
) -> None:
    """doc/en/Qwen3.5.md, the AVX2 tutorial and ktransformers#1880, #1914, #1928, #2016."""
    here = Machine(cards=(Card("?", compute=(8, 9)),), cpu_flags=XEON)
    asked = Question("kt-kernel", "safetensors", architecture, "", method, "", here)
    (finding,) = of(asked, "architecture")
    assert (finding.level, words in finding.words) == (level, True), finding.words


def test_every_method_of_kt_kernel_has_a_word_for_qwen_with_states() -> None:
    """A method without a row would be passed over as `the table says nothing about it`."""
    methods = {method for rule in table().rules if "kt-kernel" in rule.engine
               for method in rule.when.method}  # fmt: skip
    for architecture in ("qwen3_next", "qwen3_5_moe"):
        for method in methods:
            (finding,) = of(Question("kt-kernel", architecture=architecture, method=method),
                            "architecture")  # fmt: skip
            assert "says nothing" not in finding.words, (architecture, method)


@pytest.mark.parametrize(
    ("engine", "release", "level", "holds"),
    [
        ("sglang", None, Level.WARN, "holds from SGLang 0.5.23 on"),
        ("sglang", (0, 5, 22), Level.FAIL, ""),
        ("sglang", (0, 5, 23), Level.WARN, ""),
        ("vllm", None, Level.WARN, "holds from vLLM 0.33 on"),
        ("vllm", (0, 32), Level.FAIL, ""),
        ("vllm", (0, 33), Level.WARN, ""),
    ],
)
def test_a_rule_that_holds_from_a_release_on(
    engine: str, release: tuple[int, ...] | None, level: Level, holds: str
) -> None:
    """modelopt_quant.py of SGLang 0.5.23 and modelopt.py of vLLM 0.33: NVFP4 on older cards."""
    compute = (8, 6) if engine == "sglang" else (7, 5)
    cards = Machine(cards=(Card("A", "a", 24 * GIB, compute=compute),))
    question = Question(
        engine, "safetensors", "qwen3", "nvfp4", machine=cards, attention="plain", release=release
    )
    (finding,) = of(question, "quantization")
    assert (finding.level, holds in finding.holds, bool(finding.holds)) == (
        level, True, bool(holds),
    )  # fmt: skip
