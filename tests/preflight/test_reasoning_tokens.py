"""Parsers of reasoning, for whose tokens vLLM looks in the tokenizer while it is configured."""

import json
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.on_start import parser_tokens
from console.models.hub.listing import Listing

ADDED = {"added_tokens": [{"content": "<think>"}, {"content": "</think>"}]}
WITHOUT = {"added_tokens": [{"content": "<|im_end|>"}], "model": {"vocab": {"a": 0}}}


def levels(
    folder: Path, words: str, *, engine: str = "vllm", classes: tuple[str, ...] = ()
) -> list[Level]:
    loader = Loader("", engine, ("vllm", "serve", "x", *words.split()))
    listing = Listing(str(folder), "", "", ())
    return [finding.level for finding in parser_tokens(loader, listing, classes)]


@pytest.mark.parametrize(
    ("parser", "tokenizer", "expected"),
    [
        ("deepseek_r1", WITHOUT, [Level.FAIL]),
        ("deepseek_r1", ADDED, []),
        ("deepseek_r1", {"model": {"vocab": {"<think>": 0, "</think>": 1}}}, []),
        ("deepseek_r1", {"model": {"vocab": [["<think>", 0.0], ["</think>", 0.0]]}}, []),
        ("deepseek_r1", {"added_tokens": ADDED["added_tokens"][:1]}, [Level.FAIL]),
        ("deepseek_r1", None, [Level.UNKNOWN]),
        ("step3", {"added_tokens": ADDED["added_tokens"][1:]}, []),
        ("minimax_m3", ADDED, [Level.FAIL]),
        ("hy_v4", {"model": {"vocab": {"<think:61>": 0, "</think:61>": 1}}}, []),
        ("hy_v4", WITHOUT, [Level.FAIL]),
        ("qwen3", WITHOUT, []),
        ("gemma4", None, []),
    ],
)
def test_a_parser_needs_its_tokens(
    tmp_path: Path, parser: str, tokenizer: object, expected: list[Level]
) -> None:
    if tokenizer is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert levels(tmp_path, f"--reasoning-parser {parser}") == expected


def test_a_model_of_the_parsers_own_family_needs_no_look(tmp_path: Path) -> None:
    classes = ("MiniMaxM3SparseForCausalLM",)
    assert levels(tmp_path, "--reasoning-parser minimax_m3", classes=classes) == []
    assert levels(tmp_path, "--reasoning-parser deepseek_r1", classes=classes) == [Level.UNKNOWN]


@pytest.mark.parametrize("other", ["--tokenizer y", "--reasoning-parser-plugin p.py"])
def test_another_tokenizer_or_parser_is_not_known(tmp_path: Path, other: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(WITHOUT))
    assert levels(tmp_path, f"--reasoning-parser deepseek_r1 {other}") == [Level.UNKNOWN]


def test_other_engines_do_not_look(tmp_path: Path) -> None:
    assert levels(tmp_path, "--reasoning-parser deepseek-r1", engine="sglang") == []


def test_a_file_that_is_no_json_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    assert levels(tmp_path, "--reasoning-parser deepseek_r1") == [Level.UNKNOWN]
