"""The sum for well-known models beside what a real build said of the same headers.

`known.json` holds the answers of llama.cpp's `llama-fit-params` in MiB (weights, cache, compute),
without cards. `python -m tests.sizing.test_known` asks the program anew and writes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from console.checks.preflight.architecture import memory
from console.checks.preflight.architecture.memory import Reserved
from console.checks.preflight.architecture.on_host import HostProgram
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import place
from tests.sizing.known import KNOWN
from tests.testbed.fit_params import ensure_fit_params
from tests.testbed.plugin import need
from tests.waiting import some

MIB = 1 << 20
RECORD = Path(__file__).with_name("known.json")
SAME = 0.02
"""Figures within this share of each other agree."""
ROUNDED = 2
"""MiB: the program prints whole ones, and its own sum is of three."""
VARIANTS = ("-np 4", "-np 1 -ctk q8_0 -ctv q8_0", "-np 1 -fa off", "-np 1 -ub 2048 -b 2048")


@cache
def facts_of(name: str) -> ModelFacts:
    return from_gguf(KNOWN[name]())


def cases(name: str) -> Iterator[str]:
    """Three contexts, one of them the model's own, and other options at the middle one."""
    for context in sorted({4096, 32768, some(facts_of(name).context_length)}):
        yield f"-c {context} -np 1"
    yield from (f"-c 32768 {variant}" for variant in VARIANTS)


def summed(name: str, arguments: str) -> tuple[float, float, float]:
    """The console's own weights, cache and compute in MiB."""
    host = place(facts_of(name), llama_plan([*arguments.split(), "-ngl", "0"]), ()).host
    return host.weights / MIB, host.cache / MIB, host.compute / MIB


def judged(name: str, arguments: str, theirs: tuple[float, float, float]) -> None:
    ours = summed(name, arguments)
    for mine, said in ((ours[0], theirs[0]), (ours[1], theirs[1]), (sum(ours), sum(theirs))):
        assert mine == pytest.approx(said, rel=SAME, abs=ROUNDED), (arguments, ours, theirs)
        assert mine >= said - ROUNDED, (arguments, ours, theirs)


def recorded() -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = json.loads(RECORD.read_text("utf-8"))["figures"]
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_the_sum_is_what_the_build_reserves_and_never_less(name: str) -> None:
    figures = recorded()[name]
    assert set(figures) == set(cases(name))
    for arguments, (weights, cache_, compute) in figures.items():
        judged(name, arguments, (weights, cache_, compute))


def test_the_table_is_wide() -> None:
    kinds = {facts_of(name).architecture for name in KNOWN}
    assert len(kinds) >= 15, kinds
    assert not [name for name in KNOWN if facts_of(name).missing]


def asked(program: str, name: str, arguments: str) -> Reserved | str:
    """What the program says of one model, through the console's own question."""
    build = HostProgram((program,), {"LD_LIBRARY_PATH": str(Path(program).parent)})
    return memory.ask(build, program, KNOWN[name](), llama_plan(arguments.split()))


@pytest.mark.full
@pytest.mark.parametrize("name", KNOWN)
def test_a_real_build_says_so_too(name: str) -> None:
    program = need(ensure_fit_params)
    for arguments in cases(name):
        said = asked(program, name, arguments)
        assert isinstance(said, Reserved), (name, arguments, said)
        judged(name, arguments, (said.model / MIB, said.context / MIB, said.compute / MIB))


def main(program: str) -> None:
    lines = []
    for name in KNOWN:
        figures = {}
        for arguments in cases(name):
            said = asked(program, name, arguments)
            assert isinstance(said, Reserved), (name, arguments, said)
            figures[arguments] = [part // MIB for part in (said.model, said.context, said.compute)]
        lines.append(f"    {json.dumps(name)}: {json.dumps(figures)}")
    words = HostProgram((program,)).output([program, "--version"])
    version = next((line for line in words if "version" in line), "")
    table = ",\n".join(lines)
    RECORD.write_text(f'{{"build": "{version}", "figures": {{\n{table}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ensure_fit_params())
