"""Whether the installed build accepts a file's architecture, checked before the download.

The build comes from a service, an image or a binary. Other facts that a preflight takes from the
site are here too: the machine, the loader, and the baseline's measured figures.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from console.checks.preflight import Finding, Level, worst
from console.checks.preflight import header as header_checks
from console.checks.preflight.architecture import whole_header
from console.checks.preflight.architecture.in_image import ImageBuild
from console.checks.preflight.architecture.on_host import HostProgram, demo_engine
from console.checks.preflight.architecture.support import ArchVerdict, Engine, accepts
from console.checks.preflight.architecture.tensor_types import TypeVerdict, verdict_on
from console.checks.preflight.checkpoint import TYPES, finding_lines
from console.checks.preflight.compatibility import Loader
from console.checks.preflight.readings import READ_S, listing_of
from console.common import record
from console.common.errors import Exit, ServiceError, UsageError
from console.common.options import engines
from console.common.options.command_line import given
from console.common.options.start import start
from console.common.options.table import table
from console.common.options.variables import OF_ENGINES
from console.common.text import one_line
from console.common.units import format_bytes
from console.config.site.site import SiteModel
from console.host import units
from console.host.process import ProcessSpec, environ, spec_sha
from console.host.sample import Machine
from console.host.units import UnitSpec
from console.models.gguf.byte_source import GgufError, Kind, is_address
from console.models.gguf.read import (
    Reading,
    check_shards,
    merged,
    read_architecture,
    read_shards,
)
from console.models.hub import settings
from console.models.hub.checkpoint import Format
from console.models.hub.checkpoint import read as read_contents
from console.models.hub.local_files import local
from console.models.hub.reference import parse, shard, sidecar
from console.models.sizing.assessment import WIDTH, wrapped
from console.runtime.discovery.processes import argv_of
from console.runtime.docker.client import inspect
from console.runtime.spec import ContainerSpec, ExistingContainer, ServiceSpec

if TYPE_CHECKING:
    import docker


DEMO = {"console.rehearsal.demo.engine", "console.demo.engine"}
"""The embedded demo's server, whose name table lies in a Python package: its name, and the one that
site files of earlier versions have."""

Connect = Callable[[], "docker.DockerClient"]

MAX_SHARDS = 999
"""A set that is named by an address has no more files than this."""
MAPS = ("", "mmap")
LLAMA = ("", "llama.cpp")
WITH_LLAMA_LINES = (None, engines.LLAMA, engines.OTHER)
"""What is started by a command line that is read as llama.cpp's where it tells no program."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a service is run: program and arguments, environment, and its image if it has one.
    `life`: what tells it from another command line or start in evidence, "" if nothing does.
    `called`: the image's name, where `image` is its id. `unread`: files of variables that this user
    may not read."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    image: str = ""
    entrypoint: tuple[str, ...] = ()
    life: str = ""
    called: str = ""
    unread: tuple[str, ...] = ()


def command_of(spec: ServiceSpec, connect: Connect) -> Command:
    """The service's own command line, taken from an existing container if it is one.

    Raises ServiceError, EngineError.
    """
    runs = spec.runs
    if isinstance(runs, ContainerSpec):
        return Command(spec.name, runs.command, dict(runs.env), runs.image, runs.entrypoint)
    if isinstance(runs, ProcessSpec):
        return _of_process(spec.name, runs)
    if isinstance(runs, ExistingContainer):
        return _existing(spec.name, runs.name, connect)
    if isinstance(runs, UnitSpec):
        return _of_unit(spec.name, runs)
    return _compose(spec, connect)


def of_baseline(spec: ServiceSpec) -> Command | None:
    """The command line of a baseline whose site file has it; None for one that has to be asked."""
    return _of_process(spec.name, spec.runs) if isinstance(spec.runs, ProcessSpec) else None


def _of_process(name: str, runs: ProcessSpec) -> Command:
    return Command(name, runs.argv, dict(runs.env), life=f"process {spec_sha(runs)[:16]}")


def _of_unit(name: str, unit: UnitSpec) -> Command:
    """What a unit's first process was started with: no other command line is sure to be meant."""
    state = units.look(unit)
    argv = argv_of(state.main)
    if not argv:
        hint = f"{shlex.join(unit.command('start'))}, then ask again"
        raise ServiceError(f"the {unit.words} does not run", "its command line is not known", hint)
    env, unread = environ(state.main), tuple[str, ...]()
    if env is None:  # another user's: what the unit's own files give it
        given_variables = units.variables(unit)
        env, unread = given_variables.env, given_variables.unread
    # without what systemd gives: a build that is asked has nothing to tell it
    own = {name: value for name, value in env.items() if name.startswith(OF_ENGINES)}
    return Command(name, argv, own, life=f"{state.main} {state.invocation}", unread=unread)


def engine_of(command: Command, connect: Connect) -> Engine:
    """The build to ask. Raises EngineError."""
    if command.image:
        return ImageBuild(
            connect(), command.image, entrypoint=command.entrypoint, command=command.argv,
            env=command.env,
        )  # fmt: skip
    if DEMO & set(command.argv) and (program := demo_engine(command.argv)) is not None:
        return program
    return HostProgram(command.argv, command.env)


def _existing(service: str, name: str, connect: Connect) -> Command:
    container = inspect(connect(), name)
    if container is None:
        hint = "docker ps -a; or give --image or --binary"
        raise ServiceError(f"the container {one_line(name)} of {service} is not there", "", hint)
    config = container.get("Config") or {}
    pairs = [str(variable).partition("=") for variable in config.get("Env") or ()]
    return Command(
        service, tuple(str(word) for word in config.get("Cmd") or ()),
        {name: value for name, _, value in pairs}, str(container.get("Image", "")),
        tuple(str(word) for word in config.get("Entrypoint") or ()), str(container.get("Id", "")),
        called=str(config.get("Image") or ""),
    )  # fmt: skip


def _compose(spec: ServiceSpec, connect: Connect) -> Command:
    """The compose file as compose resolves it; nothing is created."""
    from console.runtime.docker.compose import ComposeDriver

    resolution = ComposeDriver(spec, connect(), Path("/nonexistent")).resolve()
    service = resolution.service
    env = {str(k): str(v) for k, v in (service.get("environment") or {}).items() if v is not None}
    return Command(
        spec.name, _words(service.get("command")), env, resolution.image_id,
        _words(service.get("entrypoint")), called=str(service.get("image") or ""),
    )  # fmt: skip


def _words(value: object) -> tuple[str, ...]:
    """The command in a resolved compose file: a list, or nothing."""
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The file's facts, and the build's answer; `verdict` is None without a build."""

    reading: Reading
    verdict: ArchVerdict | None
    problems: tuple[str, ...] = ()
    """Why no loader accepts the file's set."""
    types: TypeVerdict | None = None
    """What the build says of its tensors' types; None where that was not asked."""
    unread: Finding | None = None
    """Why the tensors' types are not known, although the build was asked."""
    header: tuple[Finding, ...] = ()
    """What a loader says of its keys, tensors and vocabulary."""

    @property
    def architecture(self) -> str:
        return self.reading.header.architecture or ""

    def finding(self) -> Finding | None:
        """Whether a loader accepts it: the gravest of what is known, the architecture first; None
        if no build was asked."""
        if self.problems:
            hint = "no loader takes a part of a set"
            return Finding(Level.FAIL, "files", "; ".join(self.problems), hint)
        own = (self._architecture(), self._types())
        findings = [*(finding for finding in own if finding is not None), *self.header]
        return next((finding for finding in findings if finding.level is worst(findings)), None)

    def _architecture(self) -> Finding | None:
        return None if self.verdict is None else self.verdict.finding()

    def _types(self) -> Finding | None:
        return self.unread if self.types is None else self.types.finding()

    def lines(self, width: int = WIDTH) -> list[str]:
        """The file and the answer, clean."""
        reading = self.reading
        size = format_bytes(reading.file_bytes) if reading.file_bytes else "size not told"
        out = wrapped(f"{reading.name}  ({size})", "  ", width)
        out += wrapped(f"  architecture: {self.architecture}", "    ", width)
        name = reading.header.text("general.name")
        out += wrapped(f"  name: {name}", "    ", width) if name else []
        read = f"{format_bytes(reading.body_bytes)} read in {reading.exchanges} exchange"
        out.append(f"  {read}{'s'[: reading.exchanges != 1]}")
        for note in reading.notes:
            out += wrapped(f"  note: {note}", "    ", width)
        for problem in self.problems:
            out += wrapped(f"  incomplete: {problem}", "    ", width)
        if self.verdict is None:
            return [
                *out,
                *(line for finding in self.header for line in finding_lines(finding, width)),
            ]
        out += wrapped(f"  asked: {self.verdict.engine.text}", "    ", width)
        if self.verdict.loader_line:
            # what is accepted ends at the values that the probe leaves out, with an error's words
            taken = (
                "its loader knows the architecture; it stopped at values that the probe leaves out"
            )
            words = taken if self.verdict.accepted else f"it said: {self.verdict.loader_line}"
            out += wrapped(f"  {words}", "    ", width)
        findings = (self.verdict.finding(), self._types(), *self.header)
        return [
            *out,
            *(line for finding in findings if finding for line in finding_lines(finding, width)),
        ]

    def to_json(self) -> dict[str, Any]:
        reading, verdict = self.reading, self.verdict
        return {
            "name": reading.name, "architecture": self.architecture,
            "file_bytes": reading.file_bytes, "exchanges": reading.exchanges,
            "body_bytes": reading.body_bytes, "notes": list(reading.notes),
            "problems": list(self.problems),
            "types": None if self.types is None else self.types.to_json(),
            "unread": self.unread.text if self.unread else "",
            "header": [{**asdict(finding), "level": str(finding.level)} for finding in self.header],
            "verdict": None if verdict is None else {
                **record.plain(verdict), "hint": verdict.hint,
                "engine": verdict.engine.text,
            },
        }  # fmt: skip


def check(
    what: str,
    engine: Engine | None,
    *,
    include: tuple[str, ...] = (),
    cancelled: threading.Event | None = None,
) -> Answer:
    """Read a path, an address or a repository's GGUF, and ask the build: for the architecture, and
    where it knows that, for the types of all tensors of the set, which takes its whole headers.

    Raises GgufError, HubError.
    """
    places, problems = locate(what, include)
    token = settings.token() if _on_hub(places[0]) else ""
    reading = read_architecture(places[0], token=token)
    if engine is None:
        return _unasked(reading, places, problems)
    architecture = reading.header.architecture or ""
    verdict = accepts(architecture, engine, cancelled=cancelled)
    if problems or verdict.accepted is False:
        return Answer(reading, verdict, problems)
    try:
        readings = read_shards(places, token=token, deadline_s=READ_S)
    except GgufError as error:
        level = Level.FAIL if error.exit_code is Exit.NO_GO else Level.UNKNOWN
        hint = error.hint or "the headers of all its files have to be read to be judged"
        unread = Finding(level, TYPES, one_line(str(error)), hint)
        return Answer(reading, verdict, problems, unread=unread)
    problems = _cut(places, readings)
    if problems:
        return Answer(_summed([reading, *readings]), verdict, problems)
    tensors = [tensor for shard in readings for tensor in shard.header.tensors or ()]
    types = verdict_on(tensors, architecture, engine, cancelled) if tensors else None
    whole = merged([shard_reading.header for shard_reading in readings])
    header = whole_header.findings(engine, whole, always=True, cancelled=cancelled)
    header += header_checks.of_mapping(whole)
    return Answer(_summed([reading, *readings]), verdict, problems, types, header=tuple(header))


def _unasked(reading: Reading, places: Sequence[str], problems: tuple[str, ...]) -> Answer:
    """What is known of a header without a build: of a whole one that lies here, or of the start of
    one elsewhere, of which no more is fetched for it. Raises GgufError."""
    if problems or any(is_address(place) for place in places):
        start = header_checks.findings_of(header_checks.named(reading.header))
        return Answer(reading, None, problems, header=tuple(start))
    readings = read_shards(places, token="", deadline_s=READ_S)
    whole = merged([shard_reading.header for shard_reading in readings])
    header = [*header_checks.unasked(whole), *header_checks.of_mapping(whole)]
    return Answer(reading, None, _cut(places, readings), header=tuple(header))


def _cut(places: Sequence[str], readings: Sequence[Reading]) -> tuple[str, ...]:
    """What the files lack of what their headers promise, and of the set that a loader expects."""
    listed = [
        (
            PurePosixPath(urlsplit(place).path if is_address(place) else place).name,
            reading.file_bytes,
        )
        for place, reading in zip(places, readings, strict=True)
    ]
    return check_shards(listed, [reading.header for reading in readings])


def _summed(readings: Sequence[Reading]) -> Reading:
    """The first reading, with what was read in all of them."""
    return replace(
        readings[0], exchanges=sum(reading.exchanges for reading in readings),
        body_bytes=sum(reading.body_bytes for reading in readings),
    )  # fmt: skip


def locate(what: str, include: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files to read (the one named, or all shards of a set, the first one first), and the
    missing files of the set."""
    if is_address(what) and not _on_hub(what):
        return _siblings(what), ()
    reference = parse(what)
    if isinstance(reference, Path):
        return _local(reference)
    listing = listing_of(what)
    if reference.path.endswith(".gguf"):
        shard_name = shard(reference.path)
        names = [
            file.path
            for file in listing.files
            if shard_name and _same(shard(file.path), shard_name)
        ]
        return tuple(listing.url(name) for name in sorted(names) or [reference.path]), ()
    patterns = include or ((f"{reference.path}/*",) if reference.path else ())
    chosen = read_contents(listing, patterns).choose()
    if chosen.format is not Format.GGUF:
        hint = "`check checkpoint` is for these"
        raise GgufError(Kind.NOT_GGUF, f"{listing.repo} holds no GGUF here", chosen.line, hint)
    places = tuple(listing.url(file.path) for file in chosen.files)
    return places, () if chosen.whole else (chosen.gap,)


def _same(shard_name: tuple[str, int, int] | None, other: tuple[str, int, int]) -> bool:
    return shard_name is not None and (shard_name[0], shard_name[2]) == (other[0], other[2])


def _siblings(address: str) -> tuple[str, ...]:
    """The addresses of all shards of a set, from that of one."""
    shard_name = shard(address)
    if shard_name is None or shard_name[2] > MAX_SHARDS:
        return (address,)
    stem, number, count = shard_name
    written = address[len(stem) :]
    return tuple(
        stem + written.replace(f"{number:05}-of", f"{at:05}-of", 1) for at in range(1, count + 1)
    )


def _on_hub(where: str) -> bool:
    return where.startswith(f"{settings.endpoint()}/")


def _local(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A local file; for a split set all of its shards, and the missing files of the set."""
    folder, split = path.is_dir(), shard(path.name) is not None and not sidecar(path.name)
    if not folder and not (split and path.exists()):
        return (str(path),), ()
    chosen = read_contents(local(path)).choose()
    whole = path if folder else path.parent
    places = tuple(str(whole / file.path) for file in chosen.files)
    return places, () if chosen.whole else (chosen.gap,)


def machine_for(site: SiteModel, disk: Path | None, *, beside: bool = False) -> Machine:
    """This machine, with the site's declared figures over the measured ones.

    All memory of a card counts, since the baseline stops first; with `beside` only what is free.
    """
    from console.host.gpu.inventory import Cards
    from console.host.machine import look

    # asking NVML takes a process of its own, for an answer that nobody would see
    declared = any(gpu.memory is not None for gpu in site.gpus)
    seen = look(disk, cards=Cards() if declared else None)
    if not beside:
        seen = replace(seen, cards=tuple(replace(card, free=None) for card in seen.cards))
    return site.machine.over(seen, site.gpus)


def loader_for(
    site: SiteModel, kind: str, engine: str, args: Sequence[str], ctx: int | None,
    lent: Command | None = None, own: Command | None = None,
) -> Loader:  # fmt: skip
    """The loader that is meant: given arguments, those of a service, or the baseline's own.

    Arguments that are read as the baseline's count as the baseline's: they are known to serve once
    the baseline was seen to with them. `own`: the baseline's command, where the site file has it.
    """
    if lent is not None:
        mine = lent.name == "baseline"
        whose = f"the arguments of {lent.name}"
        inside = bool(lent.image)
        image = lent.called or lent.image
        engine = engine or _engine_of(kind, [*lent.entrypoint, *lent.argv], image)
        served = mine and has_served(site, lent)
        env = start([*lent.entrypoint, *lent.argv], lent.env).env
        return Loader(
            kind, engine, lent.argv, env, ctx, whose, mine, served, inside=inside, image=image,
            unread=lent.unread,
        )  # fmt: skip
    known = own.argv if own is not None else tuple(site.baseline.args)
    started = _engine_of(kind, known)
    names = (*LLAMA, started) if engines.engine_of(known) in WITH_LLAMA_LINES else ("", started)
    if known and (not args or _alike(args, known)) and kind in MAPS and engine in names:
        whose = f"the arguments of {site.name}'s baseline"
        env = start(known, own.env if own is not None else {}).env
        served = has_served(site, own)
        return Loader(
            kind, engine or started, known, env, ctx, whose, own=True, served=served,
            inferred=not engine,
        )  # fmt: skip
    return Loader(kind, engine or _engine_of(kind, args), tuple(args), start(args).env, ctx)


def _engine_of(kind: str, argv: Sequence[str], image: str = "") -> str:
    """vLLM, where a command line starts it or is for its image; "" for any other, which the format
    of the files tells. SGLang and KTransformers share their command lines."""
    started = engines.engine_of(argv)
    if started in (None, engines.OTHER):
        started = engines.engine_of_image(image)
    return "vllm" if started is engines.VLLM and kind != "mmap" else ""


def has_served(site: SiteModel, command: Command | None = None) -> bool:
    """Whether the site's baseline was seen to answer with just this command line. Where the site
    file has a measurement, that counts for its arguments, unless another command line was proven
    since."""
    from console.recovery.rollback.evidence import proofs  # few command lines ask for it

    base = site.baseline
    life = command.life if command is not None else ""
    lives = [set(proof) for proof in proofs(site.name, base.url)] if life else []
    if any(life in proven_lives for proven_lives in lives):
        return True
    return base.reference is not None and not any(lives)


def _alike(command_line: Sequence[str], other: Sequence[str]) -> bool:
    """Whether llama.cpp reads two command lines alike: `-c 8192` is `--ctx_size 8192`."""
    if tuple(command_line) == tuple(other):
        return True
    options = table("llama_cpp")
    read = [
        [(got.name, got.value) for got in given(words, options)] for words in (command_line, other)
    ]
    sure = all(got.option for words in (command_line, other) for got in given(words, options))
    return sure and read[0] == read[1]


def build_of(
    specs: Mapping[str, ServiceSpec],
    connect: Connect,
    *,
    service: str = "baseline",
    image: str = "",
    binary: str = "",
    labels: Mapping[str, str] | None = None,
) -> Engine:
    """The llama.cpp build to ask: an image's, a binary's or a service's. Raises ConsoleError."""
    if binary:
        return HostProgram((binary,))
    if image:
        return ImageBuild(connect(), image, labels=labels)
    if service not in specs:
        raise UsageError(f"unknown service {one_line(service, 40)}", hint=", ".join(specs))
    return engine_of(command_of(specs[service], connect), connect)
