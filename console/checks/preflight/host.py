"""`check host`: what this machine offers a model, one function per question; each returns findings.

None of them raises. Facts may be passed in if already known (`look()`, `cards.ask()`).
"""

from __future__ import annotations

import errno
import os
import platform
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.preflight import Finding, Level, gpu, image, toolkit
from console.checks.preflight.compatibility import Question, check
from console.checks.preflight.image import torch_of
from console.common.errors import ConsoleError, EngineError, EngineTimeout
from console.common.text import one_line
from console.common.units import format_bytes
from console.host.activation import PLAIN, Activation
from console.host.gpu import inventory as nvml
from console.host.gpu.inventory import Cards
from console.host.machine import disk_free
from console.host.sample import Card, Machine
from console.models.sizing.assessment import disk_margin
from console.runtime.docker.client import ask, connect, engine_host
from console.runtime.docker.compose import compose

if TYPE_CHECKING:
    import docker


SCHED_EXT = (6, 12)
COMPOSE_S = 15.0
_FEATURES = (
    ("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_vnni", "AVX-512 VNNI"),
    ("avx512_bf16", "AVX-512 BF16"), ("amx_tile", "AMX"), ("amx_int8", "AMX INT8"),
    ("amx_bf16", "AMX BF16"),
)  # fmt: skip

Connect = Callable[[], "docker.DockerClient"]


def processor(machine: Machine, method: str = "") -> tuple[Finding, ...]:
    """The processor's features, and whether kt-kernel's `method` has kernels for them."""
    title = "processor"
    if not machine.cpu_flags:
        why = machine.given.get("cpu_flags", "nothing says them")
        processor_findings = [Finding(Level.UNKNOWN, title, f"its features are not known: {why}")]
    else:
        has = [name for flag, name in _FEATURES if flag in machine.cpu_flags]
        lacks = [name for flag, name in _FEATURES if flag not in machine.cpu_flags]
        words = f"{machine.cpu_name or 'unnamed'}: {', '.join(has) or 'none of them'}"
        words += f"; without {', '.join(lacks)}" if lacks else ""
        processor_findings = [Finding(Level.OK, title, words)]
    if method:
        rules = check(Question("kt-kernel", method=method, machine=machine))
        processor_findings += [
            finding for finding in rules if finding.title.startswith("kt-kernel, method")
        ]
    return tuple(processor_findings)


def kernel(
    *, sched_ext: bool = False, root: Path = Path("/"), release: str | None = None
) -> Finding:
    """The running kernel; with `sched_ext`, whether it has that scheduler class."""
    release = one_line(platform.release() if release is None else release, 60)
    title = "kernel"
    if not sched_ext:
        return Finding(Level.OK, title, f"Linux {release}")
    if (root / "sys/kernel/sched_ext").is_dir():
        return Finding(Level.OK, title, f"Linux {release} has sched_ext")
    new = gpu.numbers(release)[:2] >= SCHED_EXT
    words = f"Linux {release} has no sched_ext: " + (
        "it was built without CONFIG_SCHED_CLASS_EXT" if new else "6.12 is the first that can"
    )
    hint = (
        "a mainline kernel breaks the NVIDIA driver's DKMS build; a Python module called sched_ext "
        "is another thing, which no kernel brings: SGLang with kt-kernel needs neither"
    )
    return Finding(Level.FAIL, title, words, hint, ("F-018", "F-023"))


def numa(machine: Machine) -> Finding:
    nodes, title = machine.numa_nodes, "NUMA"
    if nodes is None:
        return Finding(Level.UNKNOWN, title, "the kernel does not list its nodes")
    if nodes == 1:
        return Finding(Level.OK, title, "1 node", lessons=("S-005",))
    words = f"{nodes} nodes: a model in RAM that spans them decoded at 5.2 instead of 10.9 tok/s"
    hint = "one socket: set NPS1 in the BIOS, then `numactl --hardware` says 1 node"
    return Finding(Level.WARN, title, words, hint, ("S-005",))


def ports(wanted: Iterable[int], address: str = "127.0.0.1") -> tuple[Finding, ...]:
    """Whether a server could listen there now."""
    return tuple(_port(port, address) for port in wanted)


def _port(port: int, address: str) -> Finding:
    title = f"port {port}"
    if not 0 < port < 65536:
        return Finding(Level.FAIL, title, "is no port; ports are 1 to 65535")
    try:
        socket.create_server((address, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = f"`ss -ltnp 'sport = :{port}'` shows which process listens there"
            return Finding(Level.FAIL, title, f"taken on {address}", hint)
        return Finding(Level.UNKNOWN, title, f"cannot be tried: {error.strerror}")
    return Finding(Level.OK, title, f"free on {address}")


def disk(path: Path, need: int | None) -> Finding:
    """Whether `need` bytes fit there with a margin; None means that the size is unknown."""
    title = f"disk {path}"
    try:
        free = disk_free(path)
    except EngineTimeout as error:
        return Finding(Level.FAIL, title, str(error), error.hint)
    except OSError as error:
        return Finding(Level.UNKNOWN, title, f"cannot be read: {error.strerror}")
    return room(title, free, need)


def room(title: str, free: int, need: int | None) -> Finding:
    """Compare `need` bytes with `free` bytes of a disk, measured or declared."""
    if need is None:
        words = f"{format_bytes(free)} free; how much is needed is not known"
        return Finding(Level.UNKNOWN, title, words)
    spare = disk_margin(need)
    words = f"{format_bytes(free)} free, {format_bytes(need)} needed"
    if free < need:
        short = f"{words}: {format_bytes(need - free)} short"
        return Finding(Level.FAIL, title, short, "`du -sh` below it shows what is large")
    if free < need + spare:
        low = f"{words}: only {format_bytes(free - need)} would be left of {format_bytes(spare)}"
        return Finding(Level.FAIL, title, low, "a full disk stops journals, logs and the engine")
    return Finding(Level.OK, title, words)


def cards_present(uuids: Sequence[str], cards: Cards) -> tuple[Finding, ...]:
    title, there = "cards", {card.uuid for card in cards.cards}
    if not uuids:
        return ()
    if cards.words and not there:
        return (Finding(Level.UNKNOWN, title, f"{len(uuids)} named; {cards.words}"),)
    listed = ", ".join(sorted(there)) or "none"
    missing = [
        Finding(
            Level.FAIL, title, f"{uuid} is not on this machine",
            f"`nvidia-smi -L` names those there are: {listed}",
        )
        for uuid in uuids
        if uuid not in there
    ]  # fmt: skip
    return tuple(missing) or (Finding(Level.OK, title, f"all {len(uuids)} that are named"),)


def engine(host: str = "") -> Finding:
    """Whether the container engine answers this user."""
    title = "container engine"
    try:
        client = connect(host or None)
        try:
            version_info = ask("Asking the engine's version", client.api.version)
        finally:
            client.close()
    except EngineError as error:
        return Finding(Level.FAIL, title, str(error), error.hint)
    version = one_line(str(version_info.get("Version", "?")), 40)
    return Finding(Level.OK, title, f"version {version} answers at {engine_host(host or None)}")


def compose_file(files: Sequence[Path], env: Mapping[str, str], host: str) -> tuple[Finding, ...]:
    """Whether `docker compose` accepts the files; `host` is the engine's address."""
    title = f"compose file {one_line(' '.join(path.name for path in files), 50)}"
    output_lines: list[str] = []
    argv = ["docker", "compose"]
    argv += [word for path in files for word in ("-f", str(path))]
    missing = [path for path in files if not os.path.isfile(path)]
    if missing:
        words = f"there is no file {one_line(str(missing[0]))}"
        return (Finding(Level.FAIL, title, words, "correct `files:` in the site or playbook"),)

    what = "`docker compose config`"
    try:
        compose([*argv, "config", "-q"], host, env, what, COMPOSE_S, output_lines.append)
    except EngineError as error:
        return (Finding(Level.UNKNOWN, title, f"not known: {error}", error.hint),)
    except ConsoleError as error:
        return (Finding(Level.FAIL, title, error.detail or str(error), error.hint),)
    warned = tuple(Finding(Level.WARN, title, line) for line in dict.fromkeys(output_lines))
    return warned or (Finding(Level.OK, title, "is valid"),)


@dataclass(frozen=True, slots=True)
class HostAsk:
    """Requirements to check; an empty one only describes the machine itself.

    `gpus` are UUIDs, `compute` the minimum capability of every card, `driver` the minimum version.
    `torch` are images whose PyTorch must have kernels for the cards; `cuda` is a toolkit version,
    compared with a table, and with this machine's where `nvcc` is among the `tools` of a build.
    `compose_env`: variables that the compose files are read with.
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
    tools: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    within: Activation = PLAIN


def findings(
    ask: HostAsk, machine: Machine, connect: Connect, cards: Cards | None = None
) -> Iterator[Finding]:
    """Yield an answer to each question as it comes; the site may declare `machine`."""
    seen = nvml.ask() if cards is None else cards
    yield _memory(machine)
    yield from processor(machine, ask.method)
    yield kernel(sched_ext=ask.sched_ext)
    yield numa(machine)
    yield from _cards(ask, machine.cards, seen)
    yield from toolkit.findings(ask.tools, ask.headers, ask.cuda, machine.cards, ask.within)
    yield from ports(ask.ports)
    if ask.disk is not None:
        yield disk(ask.disk, ask.need)
    if ask.compose:
        yield from compose_file(ask.compose, dict(ask.compose_env), engine_host(ask.engine or None))
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
        needs_card = ask.gpus or ask.compute or ask.torch or ask.cuda
        level = Level.UNKNOWN if needs_card else Level.WARN
        yield Finding(level, "GPU", seen.words or "none is here")
    yield from cards_present(ask.gpus, seen)
    if seen.driver or ask.driver:
        yield gpu.check_driver(seen.driver, ask.cuda, platform.release(), least=ask.driver)
    for card in cards if ask.compute else ():
        yield _compute(card, ask.compute or (0, 0))
    if ask.cuda is not None and toolkit.NVCC not in ask.tools:
        what = f"a toolkit {ask.cuda[0]}.{ask.cuda[1]}, by the table"
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
        image_findings = image.check_image(client, ref)
        yield from image_findings
        if torch and not any(finding.level is Level.FAIL for finding in image_findings):
            built = torch_of(client, ref)
            if built is None:
                yield Finding(Level.FAIL, f"PyTorch of {ref}", "it has none that can be imported")
                return
            yield gpu.check_archs(cards, built.archs, f"PyTorch {built.version} in {ref}")
    except ConsoleError as error:
        yield Finding(Level.UNKNOWN, f"image {ref}", str(error), error.hint)
