"""`check host`: the questions that were asked, each answered by a finding."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.preflight import gpu, host, image
from console.checks.preflight.imports import torch_of
from console.common.errors import ConsoleError
from console.common.finding import Finding, Level
from console.common.units import format_bytes
from console.host.capacity import Card, Machine
from console.host.gpu import inventory as nvml
from console.host.gpu.inventory import Cards
from console.runtime.docker.client import engine_host

if TYPE_CHECKING:
    import docker

Connect = Callable[[], "docker.DockerClient"]


@dataclass(frozen=True, slots=True)
class HostAsk:
    """What has to hold; the empty question asks for the machine itself.

    `gpus` are UUIDs, `compute` the least capability of every card, `driver` the oldest that will
    do. `torch` are images whose PyTorch has to have kernels for the cards; `cuda` is a toolkit's
    version. `compose_env`: variables that the compose files are read with.
    """

    method: str = ""
    ports: tuple[int, ...] = ()
    images: tuple[str, ...] = ()
    compose: tuple[Path, ...] = ()
    disk: Path | None = None
    need: int | None = None
    sched_ext: bool = False
    gpus: tuple[str, ...] = ()
    compute: tuple[int, int] | None = None
    torch: tuple[str, ...] = ()
    cuda: tuple[int, int] | None = None
    driver: str = ""
    engine: str = ""
    compose_env: tuple[tuple[str, str], ...] = ()


def findings(
    ask: HostAsk, machine: Machine, connect: Connect, cards: Cards | None = None
) -> Iterator[Finding]:
    """An answer to each question, as they come; `machine` may be one that the site declares."""
    seen = nvml.ask() if cards is None else cards
    yield _memory(machine)
    yield from host.processor(machine, ask.method)
    yield host.kernel(sched_ext=ask.sched_ext)
    yield host.numa(machine)
    yield from _cards(ask, machine.cards, seen)
    yield from host.ports(ask.ports)
    if ask.disk is not None:
        yield host.disk(ask.disk, ask.need)
    if ask.compose:
        yield from host.compose_file(
            ask.compose, env=dict(ask.compose_env), host=engine_host(ask.engine or None)
        )
    for ref in dict.fromkeys((*ask.images, *ask.torch)):
        yield from _image(ref, ref in ask.torch, machine.cards, connect)


def _memory(machine: Machine) -> Finding:
    if machine.ram_total is None:
        return Finding(Level.UNKNOWN, "memory", machine.given.get("ram_total", "not known"))
    words = f"{format_bytes(machine.ram_total)} RAM"
    if machine.ram_available is not None:
        words += f", {format_bytes(machine.ram_available)} of it for a new process"
    swap = machine.swap_total
    words += f", {format_bytes(swap)} swap" if swap else ", no swap"
    return Finding(Level.OK, "memory", f"{words} ({machine.given.get('ram_total', '')})")


def _cards(ask: HostAsk, cards: tuple[Card, ...], seen: Cards) -> Iterator[Finding]:
    for card in cards:
        size = "size not known" if card.total is None else format_bytes(card.total)
        yield Finding(Level.OK, f"GPU {card.name or card.uuid}", f"{size}, {gpu.sm(card)}")
    if not cards:
        asked = ask.gpus or ask.compute or ask.torch or ask.cuda
        level = Level.UNKNOWN if asked else Level.WARN
        yield Finding(level, "GPU", seen.words or "none is here")
    yield from host.cards_present(ask.gpus, seen)
    if seen.driver or ask.driver:
        yield gpu.check_driver(seen.driver, ask.cuda, platform.release(), least=ask.driver)
    for card in cards if ask.compute else ():
        yield _compute(card, ask.compute or (0, 0))
    if ask.cuda is not None:
        what = f"the toolkit {ask.cuda[0]}.{ask.cuda[1]}"
        yield from gpu.check_cuda(cards, ask.cuda, what)


def _compute(card: Card, least: tuple[int, int]) -> Finding:
    title = f"compute capability of {card.name or card.uuid}"
    wanted = f"{least[0]}.{least[1]} wanted"
    if card.compute is None:
        return Finding(Level.UNKNOWN, title, f"not known; {wanted}")
    level = Level.OK if card.compute >= least else Level.FAIL
    return Finding(level, title, f"{card.compute[0]}.{card.compute[1]}; {wanted}")


def _image(ref: str, torch: bool, cards: tuple[Card, ...], connect: Connect) -> Iterator[Finding]:
    try:
        client = connect()
        found = image.check(client, ref)
        yield from found
        if torch and not any(one.level is Level.FAIL for one in found):
            built = torch_of(client, ref)
            if built is None:
                yield Finding(Level.FAIL, f"PyTorch of {ref}", "it has none that can be imported")
                return
            yield gpu.check_archs(cards, built.archs, f"PyTorch {built.version} in {ref}")
    except ConsoleError as error:
        yield Finding(Level.UNKNOWN, f"image {ref}", str(error), error.hint)
