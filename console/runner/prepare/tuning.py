"""What a tuning step means on this site: the command line that it varies, and its plan lines."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from console.bench.metrics import PROMPT_ROUNDS
from console.bench.tune.decision import CLOSE, MAX_ROUNDS, ROUNDS
from console.bench.tune.space import Space, Value, space, value_of
from console.common.errors import Problem, ServiceError
from console.common.text import one_line
from console.common.units import format_bytes, format_duration
from console.config.playbook.playbook import Playbook
from console.config.playbook.rules import step_locs
from console.config.playbook.tuning_step import BASELINE, TUNED, TuneStep
from console.config.site.site import Site
from console.config.yaml import Document
from console.host.ports import is_free
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.runtime import proxy
from console.runtime.docker.client import inspect
from console.runtime.spec import (
    SHARD,
    ComposeSpec,
    ContainerSpec,
    ExistingContainer,
    Mount,
    Runs,
    ServiceSpec,
)

if TYPE_CHECKING:
    import docker

MAX_FILES = 5000
"""Files of a directory or beside a program that are looked at."""
PORTS = 100
"""How far from the baseline's port another one is looked for."""
WRITTEN = (
    "--log-file", "--log-dir", "--slot-save-path", "--prompt-cache", "-lcd",
    "--lookup-cache-dynamic",
)  # fmt: skip
"""Flags that name what an engine writes: that changes with every start and decides no figure."""
AT_MOST = "at most"
"""Where the planned duration of a search is from that no earlier run has shown."""
BY_HAND = "write the service with its command line in a playbook, and tune that"


def services(playbook: Playbook, site: Site) -> dict[str, ServiceSpec]:
    """The baseline as a service whose flags vary, by its name; empty if no step wants it."""
    wanted = any(
        step.tune is not None and step.tune.service == BASELINE and step.when
        for _, step in playbook.steps()
    )
    if not wanted:
        return {}
    spec = replace(site.baseline_spec(), name=TUNED, exclusive=True)
    return {TUNED: _elsewhere(spec) if isinstance(spec.runs, ProcessSpec) else spec}


def _elsewhere(spec: ServiceSpec) -> ServiceSpec:
    """The same at another port: nothing may take it for the baseline while its flags vary."""
    assert isinstance(spec.runs, ProcessSpec)
    port = free_port_after(proxy.port_of(spec.url))
    argv = list(spec.runs.argv)
    for place, word in enumerate(argv):
        name, mark, _ = word.partition("=")
        if name == "--port":
            at, words = (place, f"{name}={port}") if mark else (place + 1, str(port))
            argv[at : at + 1] = [words]
    url = _with_port(spec.url, port)
    return replace(spec, url=url, runs=replace(spec.runs, argv=tuple(argv)))


def free_port_after(port: int) -> int:
    """A port near another one, above it if there is room, on which nothing listens. Raises
    ServiceError."""
    near = [
        *range(port + 1, min(port + PORTS, 65536)),
        *range(port - 1, max(port - PORTS, 1024), -1),
    ]
    free_port: int | None = next((near_port for near_port in near if is_free(near_port)), None)
    if free_port is None:
        raise ServiceError(f"no port near {port} is free", "", BY_HAND)
    return free_port


def _with_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return urlunsplit(parts._replace(netloc=f"{host}:{port}"))


def resolved(
    spec: ServiceSpec, connect: Callable[[], docker.DockerClient], site: Site
) -> ServiceSpec:
    """The service with a command line that can be changed: the baseline's existing container
    becomes a container of the console's own, made like it, at another port. Raises ServiceError for
    one that cannot be made again, EngineError."""
    if not isinstance(spec.runs, ExistingContainer):
        return spec
    container = inspect(connect(), spec.runs.name)
    if container is None:
        raise ServiceError(
            f"the container {one_line(spec.runs.name)} is not there", "", "docker ps -a"
        )
    outer = proxy.port_of(spec.url)
    port = free_port_after(outer)
    return replace(spec, url=_with_port(spec.url, port), runs=made_like(container, outer, port))


def made_like(container: Mapping[str, Any], outer: int, port: int) -> ContainerSpec:
    """The specification of a container like an existing one, from what the engine says of it, with
    `port` in place of `outer`. Raises ServiceError without a published port or for a mount
    that is no directory or file of the host."""
    config, host = container.get("Config") or {}, container.get("HostConfig") or {}
    inner = [
        int(name.partition("/")[0])
        for name, places in (host.get("PortBindings") or {}).items()
        for place in places or () if str(place.get("HostPort")) == str(outer)
    ]  # fmt: skip
    if not inner:
        raise ServiceError(f"the baseline's container does not publish port {outer}", "", BY_HAND)
    mounts = list[Mount]()
    for mount in container.get("Mounts") or ():
        if mount.get("Type") != "bind":
            kind = one_line(str(mount.get("Type")))
            raise ServiceError(f"the baseline's container has a mount of type {kind}", "", BY_HAND)
        mounts.append(Mount(str(mount["Source"]), str(mount["Destination"]), not mount.get("RW")))
    requests = [r for r in host.get("DeviceRequests") or () if isinstance(r, Mapping)]
    cards = tuple(str(card) for r in requests for card in r.get("DeviceIDs") or ())
    pairs = (str(variable).partition("=") for variable in config.get("Env") or ())
    return ContainerSpec(
        image=str(container.get("Image", "")), command=_texts(config.get("Cmd")),
        entrypoint=_texts(config.get("Entrypoint")), ports=((port, inner[0]),),
        mounts=tuple(mounts), env=tuple(sorted((name, value) for name, _, value in pairs)),
        gpus=cards or (("all",) if requests else ()), memory_bytes=host.get("Memory") or None,
        shm_bytes=host.get("ShmSize") or None, workdir=str(config.get("WorkingDir") or ""),
    )  # fmt: skip


def _texts(words: object) -> tuple[str, ...]:
    return tuple(str(word) for word in words) if isinstance(words, list) else ()


def on_host(runs: object, path: str) -> Path | None:
    """Where a path of a service's command line lies on this machine; None if it does not."""
    if not path:
        return None
    if not isinstance(runs, ContainerSpec):
        cwd = runs.cwd if isinstance(runs, ProcessSpec) else ""
        return Path(cwd, path)
    for mount in runs.mounts:
        if Path(path).is_relative_to(mount.target):
            return Path(mount.source, Path(path).relative_to(mount.target))
    return None


def model_of(spec: ServiceSpec) -> Path | None:
    """The GGUF file on this machine that a llama.cpp's command line names."""
    words = [*(argv_of(spec.runs) or ()), ""]
    files = [
        after if name == word else value
        for word, after in pairwise(words)
        for name, _, value in [word.partition("=")] if name in ("-m", "--model")
    ]  # fmt: skip
    given = next((file for file in files if file.endswith(".gguf")), "")  # python has a -m, too
    path = on_host(spec.runs, given)
    return path if path is not None and path.is_file() else None


def files_named(runs: Any, argv: Sequence[str], flags: Mapping[str, Sequence[Value]]) -> list[Any]:
    """What the words of a command line and the flags' values name on this machine: files by size
    and time of change, a split model's other parts, what is in a directory, the program and the
    libraries beside it. Another build or model under the same name is another setting; what the
    engine itself writes is left out."""
    read = [
        word for before, word in pairwise(["", *argv])
        if before not in WRITTEN and word.partition("=")[0] not in WRITTEN
    ]  # fmt: skip
    words = [*read, *(value for values in flags.values() for value in values if value)]
    files: set[Path] = set()
    for word in words:
        path = on_host(runs, word.rpartition("=")[2])
        if path is None or not os.path.exists(path):  # a template's text is no name of a file
            continue
        files.add(path)
        if path.is_dir():
            files.update(islice(path.rglob("*"), MAX_FILES))
        elif SHARD.search(path.name):
            files.update(path.parent.glob(SHARD.sub("-*-of-", path.name)))
    program = shutil.which(argv[0]) if argv and not isinstance(runs, ContainerSpec) else None
    if program:
        place = Path(program).resolve()
        files.update({place, *islice(place.parent.glob("*.so*"), MAX_FILES)})
    return sorted(filter(None, map(_stamp, files)))


def _stamp(path: Path) -> tuple[str, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


def argv_of(runs: Runs) -> tuple[str, ...] | None:
    """The command line of a service that a tuning step can change; None if there is none to see.
    Of a compose service it is what follows the words of its own command."""
    if isinstance(runs, ProcessSpec):
        return runs.argv
    if isinstance(runs, ContainerSpec):
        return runs.command
    return runs.args if isinstance(runs, ComposeSpec) else None


def with_argv(runs: Runs, argv: tuple[str, ...]) -> Runs:
    """The same with another command line."""
    if isinstance(runs, ContainerSpec):
        return replace(runs, command=argv)
    if isinstance(runs, ComposeSpec):
        return replace(runs, args=argv)
    assert isinstance(runs, ProcessSpec)
    return replace(runs, argv=argv)


def space_of(step: TuneStep, known: Mapping[str, ServiceSpec]) -> Space | None:
    """The space of a step; None while the command line of an existing container is not read yet.
    Raises ValueError."""
    if step.bench:
        return space(step.flags, step.bench)
    argv = argv_of(known[step.subject].runs)
    return None if argv is None else space(step.flags, argv)


def problems(
    document: Document, playbook: Playbook, known: Mapping[str, ServiceSpec]
) -> Iterator[Problem]:
    """Tuning steps whose flags cannot be varied, or whose service has no command line to vary."""
    for loc, step in step_locs(playbook.model):
        if step.tune is None or not step.when:
            continue
        if step.tune.service == BASELINE and (why := _fixed(known[TUNED])):
            yield document.problem((*loc, "tune", "service"), why, "a service of the playbook")
            continue
        try:
            space_of(step.tune, known)
        except ValueError as error:
            yield document.problem((*loc, "tune", "flags"), str(error))


def _fixed(spec: ServiceSpec) -> str:
    """Why the baseline cannot be started beside its own place; "" if it can."""
    if isinstance(spec.runs, UnitSpec):
        return "a unit's command line is in its unit file, and cannot be changed for a measurement"
    if isinstance(spec.runs, ComposeSpec):
        return "a compose baseline cannot be started a second time, at another port"
    if isinstance(spec.runs, ProcessSpec) and value_of(spec.runs.argv, "--port") is None:
        return "the baseline's command line has no --port that could be changed"
    return ""


def words(step: TuneStep, known: Mapping[str, ServiceSpec]) -> Iterator[str]:
    """A tuning step in the plan, one line per effect."""
    try:
        made = space_of(step, known)
    except ValueError:
        return  # reported as a problem of the file
    what = step.subject or shlex.join(step.bench)
    what = "the baseline's engine, at another port," if what == TUNED else what
    yield f"starts {one_line(what, 200)} again and again, each time with other flags:"
    if made is None:
        for name, values in step.flags.items():
            yield f"  {name}: {', '.join(value or 'without' for value in values)}"
    else:
        for flag, began in zip(made.flags, made.start, strict=True):
            choices = [
                shlex.join(flag.argv_at(place)[1:]) or "alone" if flag.argv_at(place) else "without"
                for place in range(len(flag.values))
            ]
            choices[began] += " (today)"
            yield f"  {flag.words}: {', '.join(choices)}"
        yield (
            f"{made.size} combinations, of which at most {step.points} are measured, and the best "
            f"{CLOSE} in turns with today's flags, {ROUNDS} to {MAX_ROUNDS} times"
        )
    yield from _measured(step)


def longest(
    step: TuneStep, known: Mapping[str, ServiceSpec], site: Site, restore_s: float | None
) -> tuple[float | None, str]:
    """Seconds that the whole search takes at most, and the arithmetic in words; None where the time
    of a load or the rate of the baseline's answers is not known."""
    reference = site.model.baseline.reference
    try:
        made = space_of(step, known)
    except ValueError:
        return None, ""  # reported as a problem of the file
    searched = step.points if made is None else min(step.points, made.size)
    starts = searched + (CLOSE + 1) * MAX_ROUNDS
    if step.service != BASELINE or restore_s is None or reference is None:
        return None, (
            f"at most {starts} starts, each with a load of the model, and how long a load takes "
            "here is not known yet"
        )
    answers_s = (step.runs + 1) * step.max_tokens / reference.tok_s
    total_s = starts * (restore_s + answers_s)
    return total_s, (
        f"at most {starts} starts, each about {format_duration(restore_s + answers_s)}: "
        f"{format_duration(restore_s)} to load, as in earlier restores, and "
        f"{format_duration(answers_s)} of answers at the reference of {reference.tok_s:g} tok/s; "
        f"{format_duration(total_s)} in all"
    )


def _measured(step: TuneStep) -> Iterator[str]:
    kinds = {"decode": "generating", "prompt": "reading a prompt", "request": "a whole request"}
    depth = f" after {step.depth} tokens of context" if step.depth else ""
    rounds = step.runs if step.bench else PROMPT_ROUNDS
    prompts = f", {rounds} prompts of {step.prompt} tokens"
    if step.prefer == "decode" and not step.bench:
        prompts = ""
    yield (
        f"each: {step.runs} answers of {step.max_tokens} tokens{depth}{prompts}; "
        f"{kinds[step.prefer]} counts"
    )
    limits = [("RAM", step.most_ram), ("GPU memory", step.most_vram)]
    for what, most in limits:
        if most is not None:
            yield f"more than {format_bytes(most)} of {what} does not win"
    yield "what was measured before is not measured again; the flags are changed nowhere else"
