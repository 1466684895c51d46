"""Each line that `--suggest` offers, asked about as a question, has the very same verdict."""

import random
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight import of_site, suggest_text
from console.checks.preflight.architecture.check import Command
from console.checks.preflight.checkpoint import Preflight
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.suggest import Row, Suggestion, of_another_model
from console.config.site.site import Site, load_site
from console.models.sizing.assessment import Verdict
from console.models.suggest.ranking import MIN_BITS
from tests.preflight.test_offers import config, weights
from tests.preflight.test_suggest import CARD
from tests.testbed import quantizations
from tests.testbed.hub import File, LocalHub, Repo
from tests.testbed.hub_shapes import gguf

SITE = """\
schema: omni.site/v1
name: here
baseline: {{container: nothing, url: "http://127.0.0.1:1"}}
machine: {{ram: {ram}GiB, ram_used: {used}GiB, swap: {swap}GiB, disk_free: 9000GB}}
"""
PROGRAM = {"llama.cpp": 1, "ik_llama.cpp": 1, "vllm": 2, "sglang": 3}
"""Words before the options of each engine's line."""
GIVEN: tuple[tuple[str, ...], ...] = (
    (), (), ("-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"), ("-np", "4"), ("-ub", "2048"),
    ("--no-mmap",), ("--mlock",), ("-fa", "off"), ("-c", "32768"), ("--swa-full",),
)  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


def repository(random_: random.Random) -> dict[str, File]:
    """A dense model or a mixture of a random depth, in a few quantizations."""
    names = random_.sample(quantizations.NAMES, 4)
    layers = random_.choice((8, 24, 48, 64, 94))
    made: dict[str, File] = {}
    mixture = random_.random() < 0.5
    for name in names:
        kind = quantizations.type_of(name)
        if mixture:
            metadata = quantizations.mixture_metadata(layers=layers)
            tensors = list(quantizations.mixture_tensors(kind, layers))
        else:
            metadata = {**quantizations.dense_metadata(), "qwen2.block_count": layers}
            tensors = list(quantizations.dense_tensors(kind, layers=layers))
        (file,) = gguf(metadata, tensors)
        made[f"model-{name}.gguf"] = file
    return made


def machine(random_: random.Random, tmp_path: Path) -> Site:
    sizes = random_.choice(((), (8,), (24,), (32,), (24, 24), (96, 32), (12, 48), (80,) * 4))
    ram = random_.choice((8, 24, 64, 128, 512))
    text = SITE.format(ram=ram, used=random_.choice((0, 3)), swap=random_.choice((0, 16)))
    if sizes:
        text += "gpus:\n" + "".join(
            CARD.format(n=n, size=size, compute="8.9") for n, size in enumerate(sizes, 1)
        )
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load_site(path)


def asked(site: Site, row: Row, found: Suggestion, **ask: Any) -> Preflight:
    """The line of a row, as it is printed, as a question."""
    line = suggest_text.shell(suggest_text.command(found, row, suggest_text.Place()))
    words = shlex.split("\n".join(line).replace("\\\n", ""))
    return of_site.checkpoint(
        site.model, found.listing.repo, kind="", engine=row.engine,
        args=words[PROGRAM[row.engine]:], ctx=None,
        include=[one.path for one in row.case.known.chosen.files], **ask,
    )  # fmt: skip


def rows(found: Suggestion) -> Iterator[Row]:
    for row in found.rows:
        yield row
        if row.longer:
            yield row.longer


def is_worse(one: Row, other: Row) -> bool:
    """Whether somebody who chooses would be right to take the other one."""
    a, b = one.merits, other.merits
    for left, right in (
        (a.streams, b.streams),
        (a.bits < MIN_BITS, b.bits < MIN_BITS),
        (a.cost, b.cost),
        (a.verdict is Verdict.TIGHT, b.verdict is Verdict.TIGHT),
    ):
        if left != right:
            return left > right
    return a.bits < b.bits


def check(random_: random.Random, hub: LocalHub, name: str, tmp_path: Path) -> None:
    hub.add(Repo(name, repository(random_)))
    site = machine(random_, tmp_path)
    found = of_site.suggestion(
        site.model, name, kind=random_.choice(("", "", "mmap", "resident")),
        engine=random_.choice(("", "llama.cpp", "ik_llama.cpp")), args=random_.choice(GIVEN),
        ctx=random_.choice((None, None, 8192)), top=3,
    )  # fmt: skip
    agrees(site, found)


def agrees(site: Site, found: Suggestion) -> None:
    for row in rows(found):
        answer = asked(site, row, found)
        said = (row.judged.verdict, row.judged.because)
        assert (answer.verdict, answer.because) == said, row.args
    for before, after in pairwise(found.rows):
        assert not is_worse(before, after), (before.merits, after.merits)


@pytest.fixture(autouse=True)
def alone(served: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "DOCKER_HOST": f"unix://{tmp_path}/none.sock",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.mark.parametrize("seed", [7, 13])
def test_lines_and_order(seed: int, served: LocalHub, tmp_path: Path) -> None:
    check(random.Random(seed), served, f"org/seed-{seed}", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_lines_and_orders(seed: int, served: LocalHub, tmp_path: Path) -> None:
    check(random.Random(seed), served, f"org/seed-{seed}", tmp_path)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_lines_of_safetensors(engine: str, served: LocalHub, tmp_path: Path) -> None:
    served.add(Repo("org/whole", config() | weights(20 << 30, 8)))
    offered = 0
    for seed in range(4):
        site = machine(random.Random(seed), tmp_path)
        found = of_site.suggestion(
            site.model, "org/whole", kind="", engine=engine, args=(), ctx=None, top=3
        )
        offered += len(found.rows)
        agrees(site, found)
    assert offered


@pytest.mark.parametrize(
    ("started", "engine"),
    [("/srv/vllm serve org/other --max-model-len 4096", "vllm"),
     ("/srv/llama-server -m /m/other.gguf -c 4096 -ngl 0", "sglang")],
)  # fmt: skip
def test_a_baselines_own_command_line_suggests_what_its_args_do(
    started: str, engine: str, served: LocalHub, tmp_path: Path
) -> None:
    """The engine of a process that comes back counts as that of a container whose args are told."""
    served.add(Repo("org/whole", config() | weights(20 << 30, 8)))
    words, path = started.split(), tmp_path / "site.yaml"
    text = SITE.format(ram=512, used=0, swap=0)
    path.write_text(f"{text}gpus:\n{CARD.format(n=1, size=96, compute='8.9')}")
    found = []
    for own in (None, Command("baseline", tuple(words), {"CUDA_VISIBLE_DEVICES": "7"})):
        site = load_site(path)
        site.model.baseline.args[:] = [] if own else words
        found.append(
            of_site.suggestion(site.model, "org/whole", kind="", engine="", args=(), ctx=None,
                               own=own, top=3)
        )  # fmt: skip
    by_args, by_own = ([(row.engine, row.args, row.judged) for row in one.rows] for one in found)
    assert by_args == by_own
    assert {row[0] for row in by_own} == {engine}


def test_what_served_is_the_baselines_command_line_and_no_suggested_one() -> None:
    own = Loader("", "llama.cpp", ("-ngl", "99"), {"A": "b"}, of="it", own=True, served=True)
    assert of_another_model(own) == Loader("", "llama.cpp")
