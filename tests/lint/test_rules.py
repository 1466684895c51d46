"""Every rule finds its fault where it stands, and says nothing of the same thing done right."""

from __future__ import annotations

from collections import Counter

from console.lint.facts import Facts
from console.lint.rule import rules
from tests.lint.facts import EQUAL, NOTHING, UNEQUAL, said
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


def test_every_rule_can_be_told_and_cited() -> None:
    for rule in rules().values():
        assert rule.lessons
        assert rule.title
        assert rule.why.endswith(".")
        assert rule.fix
        assert not rule.fix.endswith(".")


NEEDY = [case for case in CASES if rules()[case.rule].needs]


def test_without_facts_a_rule_that_needs_them_is_silent_or_says_info() -> None:
    loud = [case.rule for case in NEEDY
            if not {one[1] for one in ours(case, case.wrong, NOTHING)} <= {"info"}
            and "ENV CPUINFER" not in case.wrong and "whl" not in case.wrong]  # fmt: skip
    assert loud == []


def test_on_another_machine_it_is_no_fault() -> None:
    assert [case.rule for case in NEEDY if ours(case, case.wrong, EQUAL)] == []


def test_a_file_that_names_the_architecture_needs_no_site() -> None:
    text = "FROM nvidia/cuda:12.4.1-devel\nRUN cmake -DCMAKE_CUDA_ARCHITECTURES=120 .\n"
    assert ("cuda-too-old-for-sm120", "error", 1, 6) in said("Dockerfile", text, NOTHING)


def test_entrypoint_and_command_of_a_service_are_one_argv() -> None:
    text = stack("image: own/engine:1\nentrypoint: python3 -m sglang.launch_server\ncommand: >\n"
                 "  --attention-backend triton --fp8-gemm-backend triton\n  --tp 2")  # fmt: skip
    assert said(C, text) == [("tensor-parallel-asymmetric-cards", "error", 7, 7)]


def test_what_is_carried_over_ssh_is_looked_at() -> None:
    text = f"ssh -o BatchMode=yes box 'nohup timeout 60 {SGLANG} --tp 2 &'\n"
    assert [one[0] for one in said("x.sh", text)] == ["tensor-parallel-asymmetric-cards"]
