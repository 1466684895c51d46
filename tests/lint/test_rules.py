"""Every rule finds its fault where it stands, and says nothing of the same thing done right."""

from __future__ import annotations

from collections import Counter

from console.checks.lint.rule import Facts, rules
from tests.lint.facts import UNEQUAL, said
from tests.lint.faults import CASES, SGLANG, C, Case, stack


def ours(case: Case, text: str, facts: Facts = UNEQUAL) -> list[tuple[str, str, int, int]]:
    return [one for one in said(case.file, text, facts) if one[0] == case.rule]


def test_the_fault_is_found_where_it_stands_and_the_same_done_right_is_not() -> None:
    wrong = {}
    for at, case in enumerate(CASES):
        found = (ours(case, case.wrong), ours(case, case.right))
        if found != ([(case.rule, case.severity, *case.place)], []):
            wrong[f"{case.rule}-{at}"] = found
    assert wrong == {}


def test_every_rule_has_a_fault() -> None:
    assert set(rules()) == set(Counter(case.rule for case in CASES))


def test_entrypoint_and_command_of_a_service_are_one_argv() -> None:
    text = stack("image: own/engine:1\nentrypoint: python3 -m sglang.launch_server\ncommand: >\n"
                 "  --attention-backend triton --fp8-gemm-backend triton\n  --tp 2")  # fmt: skip
    assert said(C, text) == [("tensor-parallel-asymmetric-cards", "error", 7, 7)]


def test_what_is_carried_over_ssh_is_looked_at() -> None:
    text = f"ssh -o BatchMode=yes box 'nohup timeout 60 {SGLANG} --tp 2 &'\n"
    assert [one[0] for one in said("x.sh", text)] == ["tensor-parallel-asymmetric-cards"]
