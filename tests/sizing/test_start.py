"""Command lines that llama-server refuses at its start, as the real one says, and what we say."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Assessment, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.loader_plan import LlamaPlan
from tests.sizing import shapes
from tests.testbed.cache import Unavailable
from tests.testbed.fit_params import ensure
from tests.testbed.plugin import lacking

LLAMA = from_gguf(shapes.llama_70b())
CARD = Card("A", total=179 * GIB, free=179 * GIB)
TWO = Machine(cards=(CARD, CARD), ram_available=768 * GIB)
NONE = Machine(ram_available=768 * GIB)

ANYWHERE = (
    "-c 16q -ngl x", "-np 0", "-np 257", "-np 300 -kvu", "-b 0", "-b 1", "-b -1", "-b 4 -np 8",
    "-c -1", "-ctk q8_1", "-ctk Q8_0", "-fa maybe", "-fa ON", "-fit ON", "-sm graph", "-sm Layer",
    "-ts 1,x", "-ts 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "-ot exps", "-ot exps=CPU,", "-ot exps=cpu",
    "-ot exps=CPU_REPACK", "-ot a=b=CPU", "-ot x{1,2}=CPU", "-ot (?i)exps=CPU", "-ot [a=CPU",
    "-ot a)=CPU", "-ot *=CPU", "-ot (*a)=CPU", "-ot [z-a]=CPU", "-ncmoe -1", "-ncffn -1",
    "--moe-cache-mib -1", "-mg x", "-dev CPU", "-dev 0", "-dev NONE", "-dev none,CUDA0",
    "-lm MMAP", "--spec-type nothing", "--spec-draft-n-max -1", "--prio 9", "--numa sideways",
    "--pooling x", "--version", "--help", "--list-devices", "--cache-list", "-cram x",
    "-ctv q8_0 -fa off",
)  # fmt: skip
WITHOUT_CARDS = (
    "-dev CUDA0", "-ot exps=CUDA0", "-sm tensor", "--moe-cache-mib 100", "-dev CUDA0,CUDA1",
)  # fmt: skip
TAKEN = (
    "-np -2", "-np 256", "-ub 0", "-ub 4096 -b 512", "-ub -1", "-ts 0,0", "-ts 1,1,1", "-dev none",
    "-mg 1", "-mg 3 -sm none -dev none", "-mg -1", "-ctxcp -5", "-cram -2", "-ot blk.*.ffn=CPU",
    "-ot =CPU", "-ot \\.ffn_(up|down)_exps\\.=CPU", "-ot (?!a)=CPU", "-b 2 -np 1", "-fa off",
    "-ctk q8_0 -fa off", "--prio 3", "--numa distribute",
)  # fmt: skip
"""What the server starts with, without a card."""


def said(
    words: str, machine: Machine, plan: Callable[[list[str]], LlamaPlan] = llama_plan
) -> Assessment:
    line = words.split()
    more = [] if "-c" in line else ["-c", "8192"]
    return assess(LLAMA, plan([*line, *more]), machine, advised=False)


@pytest.mark.parametrize("words", ANYWHERE)
@pytest.mark.parametrize("machine", [TWO, NONE], ids=["two cards", "no card"])
def test_what_is_refused_anywhere(words: str, machine: Machine) -> None:
    found = said(words, machine)
    assert found.verdict is Verdict.NO_GO, found.because


@pytest.mark.parametrize("words", WITHOUT_CARDS)
def test_what_is_refused_without_a_card(words: str) -> None:
    assert said(words, NONE).verdict is Verdict.NO_GO
    assert said(words, TWO).verdict in (Verdict.GO, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("-dev CUDA2", "--device names a card 2, and this machine has 2 cards"),
        ("-mg 2 -sm none", "--main-gpu 2: 2 of the devices are used"),
        ("-mg 1 -sm none -dev CUDA0", "--main-gpu 1: 1 of the devices"),
        ("-ot ffn=CUDA2", "--override-tensor ffn=CUDA2: this machine has 2 cards"),
        ("-ot ffn=CUDA1 -dev CUDA0 -ngl 99", "--device leaves it out"),
        ("-ot ffn=CUDA0 -dev none", "--device leaves it out"),
        ("-dev none -sm tensor", "the split mode takes 1 devices or more"),
    ],
)
def test_what_two_cards_do_not_have(words: str, why: str) -> None:
    """As two devices of a real server said."""
    found = said(words, TWO)
    assert (found.verdict, why in found.because) == (Verdict.NO_GO, True), found.because


@pytest.mark.parametrize("words", [*TAKEN, "-dev cuda0", "-sm tensor -dev CUDA0", "-mg 2 -ngl 9"])
def test_what_is_taken(words: str) -> None:
    for machine in (TWO, NONE) if words in TAKEN else (TWO,):
        found = said(words, machine)
        assert found.verdict is not Verdict.NO_GO or not found.stops, found.because


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("-ub 4096 -b 512", "--ubatch-size 4096 is cut to --batch-size, 512"),
        ("-ts 1,1,1", "--tensor-split has 3 entries for 2 devices: the others are passed over"),
    ],
)
def test_what_is_changed_without_a_word_is_said(words: str, note: str) -> None:
    assert note in said(words, TWO).notes


@pytest.mark.parametrize(
    "words", ["-dev CUDA0,CUDA0", "-ot [[:digit:]]=CPU", "-ot a++=CPU", "-dev Metal", "-ngl 1e3"]
)
def test_what_nobody_here_counts(words: str) -> None:
    assert said(words, TWO).verdict is Verdict.UNKNOWN


def test_ik_llama_leaves_out_what_is_not_there() -> None:
    """Its source: "backend not available" is logged, and the others are used."""
    found = said("-dev CUDA0,CUDA7", TWO, ik_plan)
    assert not found.stops
    assert any("leaves out" in note for note in found.notes)
    assert said("-sm graph", Machine(cards=(CARD,), ram_available=768 * GIB), ik_plan).stops
    assert not said("-np 0", TWO, ik_plan).stops


@pytest.mark.parametrize("name", ["x.gguf.part1of2", "x.Q4.gguf-split-a", "x.gguf.part-aa"])
def test_a_part_of_a_file_is_no_model(name: str) -> None:
    """The loader ends on the first part, which begins as a whole file does."""
    assert f"--model {name}: a part of a file" in said(f"-m {name}", TWO).because
    assert not said("-m x-00001-of-00003.gguf", TWO).stops


READY = "server is listening"


def starts(server: str, model: Path, words: str) -> bool:
    """Whether the real server listens in the end. It is ended then."""
    line = words.split()
    own = ["-m", str(model), "--port", "0", "--no-warmup", "-t", "1", "-lv", "4"]
    more = [] if "-c" in line else ["-c", "512"]
    running = subprocess.Popen(
        [server, *own, *more, *line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env={"GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip
    timer = threading.Timer(60, running.kill)
    timer.start()
    try:
        assert running.stdout is not None
        return any(READY in row or "all slots are idle" in row for row in running.stdout)
    finally:
        timer.cancel()
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


@pytest.mark.alone
@pytest.mark.full
def test_the_real_server_says_the_same(instruct_model: Path) -> None:
    try:
        server = ensure("llama-server")
    except Unavailable as error:
        lacking(error.reason)
    began = {words: starts(server, instruct_model, words) for words in (*ANYWHERE, *WITHOUT_CARDS)}
    assert [words for words, ready in began.items() if ready] == []
    began = {words: starts(server, instruct_model, words) for words in TAKEN}
    assert [words for words, ready in began.items() if not ready] == []
