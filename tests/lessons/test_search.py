"""Searching: what an operator would type finds what was meant, first."""

from __future__ import annotations

from console.config.lessons.registry import Registry
from console.config.lessons.use import search

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
