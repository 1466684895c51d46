"""Everything a rehearsal is made of, before a run is: mapping, site, playbook, images, the fault.

A fault is what a rehearsal is told to let go wrong: one abort criterion each, and the grey zone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import EngineError, UsageError
from console.common.text import one_line
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import CriterionModel
from console.config.site.site import Site, load_site
from console.rehearsal import baseline, files, image, scaling, workspace
from console.rehearsal import site as sites
from console.rehearsal.inside.settings import Settings
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.scaling import SOAK_TOKENS
from console.rehearsal.workspace import Mapping, move_ports
from console.runtime.docker.container import is_here

if TYPE_CHECKING:
    import docker


FAULTS = {
    "no-sm120": "the build has no kernels for the cards",
    "no-sched-ext": "the server's imports end at sched_ext, which no wheel brings (F-018)",
    "cuda-error": "a CUDA kernel error in the candidate's log, soon after it serves",
    "slow": "the candidate generates below the abort threshold, by 30 %",
    "grey": "the candidate generates in the grey zone, between abort and GO",
    "vram": "the candidate takes more VRAM than the budget",
    "ram": "the load eats RAM until the guard stops it",
    "crash": "the candidate dies under the soak",
    "never-ready": "the candidate loads for ever",
}

MOST_RAM, LEAST_RAM = 4 << 30, 1 << 30
"""What a stand-in load may eat before the guard stops it, bytes."""
EATEN_S = 10.0
MODEL = "baseline.gguf"
Say = Callable[[str], None]


def known(name: str) -> str:
    """The name, as given; empty for none. Raises UsageError with the list for any other."""
    if name and name not in FAULTS:
        listed = "\n".join(f"{one:<12} {what}" for one, what in FAULTS.items())
        raise UsageError(f"there is no fault '{one_line(name, 40)}'", listed, "--fault NAME")
    return name


@dataclass(frozen=True)
class Rehearsal:
    """What a run of it is started with."""

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


def draft(path: Path, given: dict[str, str], site: Site, fault: str) -> tuple[Playbook, Mapping]:
    """The playbook as it is written, and a mapping without anything measured or started."""
    services = frozenset(site.model.services)
    written = load_playbook(
        path, given, site_services=services, aliases=site.model.names, planning=True
    )
    told = Settings(cards=(of := sites.cards(site)), hold=sites.hold(of),
                    soak_tokens=SOAK_TOKENS, eat_bytes_s=int(_budget() / EATEN_S))  # fmt: skip
    speed = scaling.aim(_criteria(written), sites.reference(site)).speed(known(fault))
    base = image.base_tag()
    return written, Mapping(
        base=base, fault=fault, ports=move_ports(_ports(written, site)), told=told, speed=speed,
        cpus=speed * (baseline.known(base) or baseline.FIRST), ram_below=_free() - _budget(),
        inputs=_inputs(written, given),
    )  # fmt: skip


def fill(
    path: Path, given: dict[str, str], site: Site, mapping: Mapping, *, planning: bool
) -> Rehearsal:
    """Site and playbook by a mapping; writes the site and what the playbook expects to find."""
    workspace.enter(mapping.for_image("this host"))
    for name, value in mapping.inputs.items():
        _lay(name, Path(value))
    rewriter = Rewriter(mapping, site.model.engine.host)
    # by its real name: a preflight knows the baseline's own weights by it
    model = (
        workspace.directory() / "models" / Path(next(iter(site.model.baseline.models), MODEL)).name
    )
    model.parent.mkdir(exist_ok=True)
    model.write_text("stand-in: the model is in the image\n")
    own = load_site(sites.write(site, rewriter, model))
    playbook = load_playbook(
        path, {**mapping.inputs, **given}, planning=planning, rewrite=rewriter,
        site_services=frozenset(own.model.services), aliases=own.model.names,
    )  # fmt: skip
    return Rehearsal(own, playbook, rewriter)


def make_images(client: docker.DockerClient, made: Rehearsal) -> None:
    """Stand-ins of every image that no step of the playbook builds. Raises ConsoleError."""
    for name, tag in made.rewriter.images.items():
        if tag not in made.rewriter.built:
            told = made.mapping.for_image(name)
            image.ensure_stand_in(client, made.mapping.base, tag, told)


def measured(mapping: Mapping, cpus_per_tok_s: float) -> Mapping:
    """The mapping with the quota that gives its speed; a load that eats RAM is to be quick."""
    cpus = 1.0 if mapping.fault == "ram" else mapping.speed * cpus_per_tok_s
    return replace(mapping, cpus=cpus)


def _criteria(playbook: Playbook) -> Iterator[CriterionModel]:
    for _, step in playbook.steps():
        yield from step.gate or ()


def _ports(playbook: Playbook, site: Site) -> Iterator[int]:
    """Every port that baseline, services and checks name."""
    yield sites.port_of(site.model.baseline.url)
    for spec in (*site.model.services.values(), *playbook.model.services.values()):
        yield sites.port_of(spec.url)
    for _, step in playbook.steps():
        if step.host is not None:
            yield from step.host.ports
        if step.check is not None and step.check.port_free is not None:
            yield step.check.port_free


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


def _lay(name: str, path: Path) -> None:
    """What stands at a moved path: an interpreter by its name, else a directory."""
    del name
    if path.name.startswith("python"):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.python(path)
    else:
        path.mkdir(parents=True, exist_ok=True)


def _free() -> int:
    from console.host.gpu.inventory import Cards
    from console.host.machine import look

    return look(cards=Cards()).ram_available or 0


def _budget() -> int:
    return max(LEAST_RAM, min(MOST_RAM, _free() // 4))
