"""What the operator's own build says of a model's memory, beside the console's own sum.

The tool is a stand-in: a script in its place that prints what the real one prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.architecture import memory
from console.checks.preflight.architecture.memory import MIB, Reserved
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.checkpoint import not_known
from console.models.gguf.header import Header
from console.models.gguf.read import read_header
from console.models.sizing.assessment import HOST, Assessment
from console.models.sizing.loader_plan import LlamaPlan, Strategy
from tests.testbed.models import visible_llama

GIB = 1024 * MIB


@pytest.fixture
def header(tmp_path: Path) -> Header:
    visible_llama(tmp_path / "model.gguf")
    return read_header(str(tmp_path / "model.gguf")).header


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str], HostProgram]:
    def made(body: str) -> HostProgram:
        for name, script in (("llama-server", "exit 0"), (memory.TOOL, body)):
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return HostProgram((str(tmp_path / "bin" / "llama-server"),))

    return made


def summed(*, left: int = 10 * GIB) -> Assessment:
    """A sum of 73 MiB of weights, 20 of cache, 532 for the process, with so much left."""
    found = Assessment(Strategy.RESIDENT)
    found.add("weights", 73 * MIB, HOST)
    found.add("cache", 20 * MIB, HOST)
    found.add("compute", 20 * MIB, HOST)
    found.add("process", 512 * MIB, HOST)
    found.limit(HOST, 625 * MIB + left)
    return found


def test_the_tool_gets_the_plan_and_a_file_of_the_real_length(
    tmp_path: Path, build: Callable[[str], HostProgram], header: Header
) -> None:
    said = tmp_path / "said"
    body = (
        f'echo "$*" >{said}; for last; do :; done; stat -c %s "$last" >>{said}\necho "Host 1 2 3"'
    )
    plan = LlamaPlan(ctx=8192, type_k="q8_0", ubatch=4096, parallel=2, swa_full=True)
    found = memory.ask(build(body), memory.tool_beside(build(body)), header, plan)
    assert found == Reserved(1 * MIB, 2 * MIB, 3 * MIB)
    words, size = said.read_text().splitlines()
    assert words.startswith(
        "-fitp on -nr -c 8192 -ub 4096 -b 4096 -ctk q8_0 -ctv f16 -fa on -np 2 --swa-full -m "
    )
    assert int(size) == pytest.approx((tmp_path / "model.gguf").stat().st_size, abs=65_536)


def test_rows_of_all_devices_are_summed() -> None:
    lines = ["0.00 I llama_fit_params: printing", "CUDA0 100 10 1", "CUDA1 200 20 2", "Host 7 0 5"]
    assert memory.read(lines) == Reserved(307 * MIB, 30 * MIB, 8 * MIB)


@pytest.mark.parametrize(
    ("says", "left", "level", "words"),
    [
        ("Host 73 20 21", 10 * GIB, Level.OK, "weights 73.0 MiB, cache 20.0 MiB, compute 21.0 MiB"),
        ("Host 73 120 21", 10 * GIB, Level.WARN, "100.0 MiB more cache than the sum here, which"),
        ("Host 73 120 21", 50 * MIB, Level.FAIL, "which does not fit"),
        ("error: invalid argument: -fitp", 0, Level.WARN, "did not answer"),
        ("it ended with exit code 127", 0, Level.WARN, "did not answer"),
    ],
)  # fmt: skip
def test_the_more_careful_of_both_counts(
    build: Callable[[str], HostProgram], header: Header, says: str, left: int, level: Level,
    words: str,
) -> None:  # fmt: skip
    [one] = memory.findings(build(f'echo "{says}"'), header, LlamaPlan(), summed(left=left))
    assert one.level is level
    assert words in one.words


def test_a_build_that_does_not_load_it_leaves_no_go(
    build: Callable[[str], HostProgram], header: Header
) -> None:
    body = 'echo "E llama_model_load: error loading model: missing tensor x" >&2; exit 1'
    [one] = memory.findings(build(body), header, LlamaPlan(), summed())
    assert one.level is Level.UNKNOWN
    assert "missing tensor x" in not_known([one])
    body = 'echo "E llama_model_load: error loading model vocabulary: no tokens" >&2; exit 1'
    [other] = memory.findings(build(body), header, LlamaPlan(), summed())
    assert other.level is Level.WARN


@pytest.mark.parametrize(
    "body",
    [
        "echo '/src/ggml/src/ggml-impl.h:330: fatal error'; kill -ABRT $$",
        "echo 'GGML_ASSERT(n > 0) failed'; kill -ABRT $$", "kill -SEGV $$",
    ],
)  # fmt: skip
def test_a_build_that_aborts_with_it_leaves_no_go(
    build: Callable[[str], HostProgram], header: Header, body: str
) -> None:
    [one] = memory.findings(build(body), header, LlamaPlan(), summed())
    assert (one.level, "this build aborts with it" in one.words) == (Level.UNKNOWN, True)
    assert not_known([one])


def test_the_context_is_what_a_server_makes_of_its_slots(header: Header) -> None:
    trained = header.integer("llama.context_length")
    assert trained is not None
    for plan, tokens in (
        (LlamaPlan(parallel=4), 4 * trained), (LlamaPlan(parallel=4, fit=False), trained),
        (LlamaPlan(), trained), (LlamaPlan(per_slot=1024), 4 * 1024), (LlamaPlan(ctx=512), 512),
    ):  # fmt: skip
        words = memory.arguments(plan, trained)
        assert words[words.index("-c") + 1] == str(tokens)


def test_without_the_tool_nothing_is_said(
    tmp_path: Path, build: Callable[[str], HostProgram], header: Header
) -> None:
    made = build("exit 1")
    (tmp_path / "bin" / memory.TOOL).unlink()
    for nobody in (made, HostProgram(("/no/such/llama-server",)), None):
        assert memory.findings(nobody, header, LlamaPlan(), summed()) == []
    assert memory.findings(build("echo Host 1 1 1"), None, LlamaPlan(), summed()) == []


def test_only_more_than_is_left_everywhere_does_not_fit(
    build: Callable[[str], HostProgram], header: Header
) -> None:
    """A card that is packed on purpose says nothing of RAM, and a measurement outranks a sum."""
    asked = build('echo "Host 73 120 21"')
    roomy = summed(left=10 * GIB)
    roomy.limit("card 0", 0)
    nothing = Assessment(Strategy.RESIDENT)
    serves = summed(left=50 * MIB)
    serves.served_by = "ws's baseline"
    for found in (roomy, nothing, serves):
        [one] = memory.findings(asked, header, LlamaPlan(), found)
        assert one.level is Level.WARN, one.words


def test_an_odd_header_is_no_traceback(build: Callable[[str], HostProgram], header: Header) -> None:
    odd = replace(header, kv={**header.kv, "x.scale": 1e300})
    [one] = memory.findings(build("echo Host 1 1 1"), odd, LlamaPlan(), summed())
    assert one.level is Level.WARN
