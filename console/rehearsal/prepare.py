"""Prepares a rehearsal before its run exists: mapping, site, playbook, images, the fault.

A fault is what shall go wrong in a rehearsal: one for each abort criterion, and the grey zone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common.errors import EngineError, UsageError
from console.common.text import one_line
from console.common.units import parse_bytes
from console.config.playbook.kinds import Moved, marked
from console.config.playbook.load import load_playbook
from console.config.playbook.measuring_steps import SHORT_TOKENS
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import Step
from console.config.site.site import Site, load_site
from console.config.yaml import parse
from console.host.ports import port_of
from console.rehearsal import image, speed, workspace
from console.rehearsal.inside.settings import Settings
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.workspace import Mapping, move_ports
from console.runtime.docker.container import is_here

if TYPE_CHECKING:
    import docker


FAULTS = {
    "no-sm120": "the build has no kernels for the cards",
    "no-sched-ext": "the server's imports end at sched_ext, which no wheel brings (F-018)",
    "cuda-error": "a CUDA kernel error in the candidate's log, soon after it serves",
    "slow": "the candidate generates below the abort threshold, by 30 %",
    "garbled": "the candidate repeats one word for ever, as fast as it should be",
    "grey": "the candidate's speed decides nothing: it lies between abort and GO, or around GO",
    "vram": "the candidate takes more VRAM than the budget",
    "ram": "the load eats RAM until the guard stops it",
    "crash": "the candidate dies under the soak",
    "never-ready": "the candidate loads for ever",
}

MAX_RAM, MIN_RAM = 4 << 30, 1 << 30
"""Bytes that a stand-in load may eat before the guard stops it."""
EATEN_S = 10.0
MODEL = "baseline.gguf"
REFERENCE_TOK_S = 10.9
"""Assumed speed of a baseline without a reference."""
WORKSTATION = (
    {"uuid": "GPU-rehearsal-0", "name": "RTX PRO 6000 (scripted)", "memory": "96GiB",
     "compute": "12.0"},
    {"uuid": "GPU-rehearsal-1", "name": "RTX 5090 (scripted)", "memory": "32GiB",
     "compute": "12.0"},
)  # fmt: skip
HELD = 0.84
"""Share of each card that a stand-in takes; the seeds' baseline takes 115 GB of 128 GiB."""
DEFAULT_BYTES = 32 << 30


def known(name: str) -> str:
    """The fault's name, as given; empty for none. Raises UsageError with the list for any other."""
    if name and name not in FAULTS:
        listed = "\n".join(f"{fault:<12} {what}" for fault, what in FAULTS.items())
        raise UsageError(f"there is no fault '{one_line(name, 40)}'", listed, "--fault NAME")
    return name


@dataclass(frozen=True)
class Rehearsal:
    """The arguments to start its run with."""

    site: Site
    playbook: Playbook
    rewriter: Rewriter

    @property
    def mapping(self) -> Mapping:
        return self.rewriter.mapping


def engine(host: str) -> docker.DockerClient:
    """The engine on this machine. Raises UsageError that says what is missing."""
    from console.runtime.docker.client import connect

    image.engine()
    try:
        client = connect(host or None)
    except EngineError as error:
        raise UsageError("a rehearsal needs Docker", str(error), error.hint) from error
    if not is_here(client):
        raise UsageError("a rehearsal needs Docker on this machine", "the engine is elsewhere")
    return client


def draft(path: Path, given: dict[str, str], site: Site, fault: str) -> Mapping:
    """A mapping for the playbook as written, without measuring or starting anything."""
    services = frozenset(site.model.services)
    written = load_playbook(
        path, given, site_services=services, aliases=site.model.names, planning=True,
        offers=site.offers,
    )  # fmt: skip
    criteria = [criterion for _, step in written.steps() for criterion in step.gate or ()]
    targets = speed.target_speeds(criteria, reference(site))
    settings = Settings(cards=(of := cards(site)), hold=hold(of), unsteady=targets.unsteady,
                    soak_tokens=SHORT_TOKENS, eat_bytes_s=int(_budget() / EATEN_S))  # fmt: skip
    factor = targets.speed(fault)
    base = image.base_tag()
    return Mapping(
        base=base,
        fault=fault,
        ports=move_ports(_ports(written, site)),
        settings=settings,
        speed=factor,
        cpus=factor * (speed.known(base) or speed.FIRST),
        ram_below=_free() - _budget(),
        inputs=_inputs(written, given),
    )


def fill(
    path: Path, given: dict[str, str], site: Site, mapping: Mapping, *, planning: bool
) -> Rehearsal:
    """Apply a mapping to site and playbook; writes the site and the files the playbook expects."""
    workspace.enter(mapping.for_image("this host"))
    for value in mapping.inputs.values():
        _make_moved(Path(value))
    rewriter = Rewriter(mapping, site.model.engine.host)
    # by its real name: a preflight knows the baseline's own weights by it
    model = (
        workspace.directory() / "models" / Path(next(iter(site.model.baseline.models), MODEL)).name
    )
    model.parent.mkdir(exist_ok=True)
    model.write_text("stand-in: the model is in the image\n")
    own = load_site(write_site(site, rewriter, model))
    playbook = load_playbook(
        path, {**mapping.inputs, **given}, planning=planning, rewrite=rewriter,
        site_services=frozenset(own.model.services), aliases=own.model.names, offers=own.offers,
    )  # fmt: skip
    return Rehearsal(own, playbook, rewriter)


def reference(site: Site) -> float:
    known = site.model.baseline.reference
    return known.tok_s if known is not None else REFERENCE_TOK_S


def cards(site: Site) -> list[dict[str, Any]]:
    """{uuid, name, total} of each scripted card: the site's, or a workstation's."""
    if not site.model.gpus:
        return [{**card, "total": parse_bytes(card["memory"])} for card in WORKSTATION]
    return [
        {"uuid": gpu.uuid, "name": gpu.name or gpu.uuid, "total": gpu.memory or DEFAULT_BYTES}
        for gpu in site.model.gpus
    ]


def hold(of: list[dict[str, Any]]) -> dict[str, int]:
    """UUID → bytes that a load takes."""
    return {str(card["uuid"]): int(card["total"] * HELD) for card in of}


def write_site(site: Site, rewriter: Rewriter, model: Path) -> Path:
    """The site file of the rehearsal, as JSON, written to its directory. Services and guards are
    rewritten as a playbook's are; it tells nobody anything. Raises OSError."""
    data = json.loads(json.dumps(parse(site.text, str(site.path), "the site").data))
    mapping, real = rewriter.mapping, site.model.baseline
    made = {key: data["baseline"][key] for key in ("ready", "completion", "args")
            if key in data["baseline"]}  # fmt: skip
    data["name"] = f"REHEARSAL-{site.name}"
    data.pop("notify", None)  # nobody is called for a rehearsal
    data["baseline"] = {
        **made, "container": speed.container(), "models": [str(model)],
        "url": mapping.text(f"http://127.0.0.1:{port_of(real.url)}", {}),
        "reference": {**data["baseline"].get("reference", {}), "tok_s": reference(site)},
    }  # fmt: skip
    names = site.model.names  # the baseline's real container is a name of its stand-in
    data["aliases"] = {old: names.get(new, new) for old, new in names.items()}
    if not site.model.gpus:
        data["gpus"] = list(WORKSTATION)
    for name, service in (data.get("services") or {}).items():
        rewriter.service(name, service, site.base)
    guards = data.setdefault("guards", [])
    for guard in guards:
        rewriter.guard(guard)
    if not any(guard.get("metric") == "host.ram_available" for guard in guards):
        guards.append({"metric": "host.ram_available", "below": "24GiB"})
        rewriter.guard(guards[-1])
    path = workspace.site()
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def make_images(client: docker.DockerClient, made: Rehearsal) -> None:
    """Stand-ins of every image that no step of the playbook builds. Raises ConsoleError."""
    for name, tag in made.rewriter.images.items():
        if tag not in made.rewriter.built:
            settings = made.mapping.for_image(name)
            image.ensure_stand_in(client, made.mapping.base, tag, settings)


def measured(mapping: Mapping, cpus_per_tok_s: float) -> Mapping:
    """The mapping with the measured quota; a load that eats RAM gets a fast one."""
    cpus = 1.0 if mapping.fault == "ram" else mapping.speed * cpus_per_tok_s
    return replace(mapping, cpus=cpus)


def _ports(playbook: Playbook, site: Site) -> Iterator[int]:
    yield port_of(site.model.baseline.url)
    for spec in (*site.model.services.values(), *playbook.model.services.values()):
        yield port_of(spec.url)
    for _, step in playbook.steps():
        yield from marked(Step, step, Moved.PORT)


def _inputs(playbook: Playbook, given: dict[str, str]) -> dict[str, str]:
    """Paths below the work directory, for each path that the operator did not give."""
    moved = {}
    for name, model in playbook.model.inputs.items():
        path = Path(str(playbook.inputs.get(name, "")))
        if model.type != "path" or name in given or not path.is_absolute():
            continue
        if path.is_relative_to(playbook.base) and path.exists():
            continue  # the playbook's own file
        part = hashlib.sha256(str(playbook.base).encode()).hexdigest()[:6]
        moved[name] = str(workspace.work() / part / str(path).lstrip("/"))
    return moved


def _make_moved(path: Path) -> None:
    """Make what a moved path needs: an interpreter, judged by its name, else a directory."""
    if path.name.startswith("python"):
        image.python(path)
    else:
        path.mkdir(parents=True, exist_ok=True)


def _free() -> int:
    from console.host.gpu.inventory import Cards
    from console.host.machine import look

    return look(cards=Cards()).ram_available or 0


def _budget() -> int:
    return max(MIN_RAM, min(MAX_RAM, _free() // 4))
