"""What a cutover means on this site: the relay as a service, plan lines, and what prevents it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from console.common.units import format_duration
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import CutoverStep, Step
from console.config.site.site import Site
from console.host.ports import wide
from console.host.process import ProcessSpec
from console.runtime import proxy as relay
from console.runtime.spec import Ready, ServiceSpec

if TYPE_CHECKING:
    from console.runner.prepare.plan import Plan

RELAY_GRACE_S = 2.0
RELAY_READY_S = 30.0


def door(site: Site, cut: CutoverStep) -> str:
    """HOST:PORT where clients connect: the baseline's, or the address that the step names."""
    url = site.model.baseline.url
    host = cut.listen or urlsplit(url).hostname or "127.0.0.1"
    return f"[{host}]:{relay.port_of(url)}" if ":" in host else f"{host}:{relay.port_of(url)}"


def relay_spec(site: Site, cut: CutoverStep, to: ServiceSpec) -> ServiceSpec:
    """The relay of a cutover as a host process, ready when the candidate answers through it."""
    argv = relay.argv(door(site, cut), relay.address(to.url), to.name)
    ready = Ready(to.ready.path, RELAY_READY_S)
    url = site.model.baseline.url
    return ServiceSpec(relay.NAME, url, ProcessSpec(argv), ready, grace_s=RELAY_GRACE_S)


def relays(
    playbook: Playbook, site: Site, services: dict[str, ServiceSpec]
) -> dict[str, ServiceSpec]:
    """The relay as a service of the run, by its name; empty without a cutover."""
    cuts = [s.cutover for _, s in playbook.steps() if s.cutover is not None and s.when]
    known = [cut for cut in cuts if cut.to in services]
    return {relay.NAME: relay_spec(site, known[0], services[known[0].to])} if known else {}


def words(step: Step, site: Site, services: dict[str, ServiceSpec]) -> Iterator[str]:
    """A cutover in the plan, one line per effect."""
    cut = step.cutover
    assert cut is not None
    to = services.get(cut.to)
    where = f" ({relay.address(to.url)})" if to is not None else ""
    yield f"CLIENTS REACH {cut.to} HERE: a relay hands {door(site, cut)} to it{where}"
    yield "  requests under way are cut; clients that name the baseline's container are not moved"
    yield f"proves it: {site.model.baseline.url} has to answer a completion"
    yield (
        f"watches it for {format_duration(cut.watch)}: health, a completion every "
        f"{format_duration(cut.every)}, at most {cut.max_errors} may fail"
    )
    yield "if anything of that fails: rollback, at once"
    if cut.stays:
        yield (
            f"then clients stay at {cut.to}, and the run may end so: not promoted; "
            "`omni-console rollback` brings the baseline back at any time"
        )
    else:
        yield "then goes back: the relay ends, the baseline returns with the next row"


def misfits(plan: Plan) -> list[str]:
    """Why a cutover of this plan cannot work on this site, in words; empty if it can."""
    reasons: list[str] = []
    base = plan.site.model.baseline.url
    for _, step in plan.playbook.steps():
        cut = step.cutover
        if cut is None or not step.when:
            continue
        to = plan.services[cut.to]
        if cut.port is not None and cut.port != relay.port_of(base):
            reasons.append(
                f"{step.id}: port {cut.port} is not the baseline's; clients are at {base}"
            )
        if relay.port_of(to.url) == relay.port_of(base):
            reasons.append(f"{step.id}: {cut.to} is on the baseline's port itself ({to.url})")
        wrong = _cannot_listen(door(plan.site, cut))
        if wrong:
            reasons.append(f"{step.id}: nothing can listen at {door(plan.site, cut)} here: {wrong}")
    return reasons


def narrow(plan: Plan) -> list[str]:
    """Cutovers whose relay would listen on fewer addresses than the baseline does now."""
    base = plan.site.model.baseline.url
    cuts = [s for _, s in plan.playbook.steps() if s.cutover is not None and s.when]
    if not cuts or not wide(relay.port_of(base)):
        return []
    return [
        f"{step.id}: the baseline listens on every address, the relay on {door(plan.site, cut)} "
        "alone; `listen: 0.0.0.0` takes over clients of other machines too"
        for step in cuts
        if (cut := step.cutover) is not None and not cut.listen
    ]


def _cannot_listen(address: str) -> str:
    host = urlsplit(f"//{address}").hostname or ""
    try:
        for family, kind, proto, _, name in socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, proto) as probe:
                probe.bind(name)
    except OSError as error:
        return error.strerror or str(error)
    return ""
