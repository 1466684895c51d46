"""A preflight on one site, shared by the command, the screen and the step, and its verdict as GO,
NO-GO or HOLD."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.preflight import Finding, Level, worst
from console.checks.preflight import header as header_checks
from console.checks.preflight import host as on_host
from console.checks.preflight.architecture import (
    absent,
    memory,
    options,
    support,
    tensor_types,
    whole_header,
)
from console.checks.preflight.architecture.absent import Absent
from console.checks.preflight.architecture.check import (
    Command,
    Connect,
    build_of,
    loader_for,
    machine_for,
)
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.architecture.support import Engine
from console.checks.preflight.checkpoint import Ask, ByBuild, Preflight, preflight
from console.checks.preflight.compatibility import Loader, fitting, speaks_gguf
from console.checks.preflight.host import HostAsk
from console.checks.preflight.suggest import TOP, Suggestion, suggest
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.config.playbook.verdict import Verdict
from console.config.site.site import Site, SiteModel
from console.host.children import within
from console.host.process import ProcessSpec
from console.models.gguf.header import Header
from console.models.hub.checkpoint import Format
from console.models.sizing.assessment import Assessment
from console.models.sizing.assessment import Verdict as Fit
from console.models.sizing.flags.builds import Takes
from console.models.sizing.loader_plan import Build, LoaderPlan
from console.runtime.spec import ServiceSpec

if TYPE_CHECKING:
    import docker

    from console.checks.preflight.sources.assistant import BuildAsk

Kept = dict[int, tuple[Header, list[Finding]]]
"""What was found of headers, by their ids."""
AskedBuild = Callable[[], Engine | Absent | None]
"""Looks for the build that would load a GGUF; None where there is none to be asked."""
BUILD_S = 180.0
"""Most seconds that reading sources and asking the engine may take."""
FITS = {
    Fit.GO: Verdict.GO, Fit.STREAMING: Verdict.GO, Fit.TIGHT: Verdict.HOLD,
    Fit.UNKNOWN: Verdict.HOLD, Fit.NO_GO: Verdict.NO_GO,
}  # fmt: skip
LEVELS = {
    Level.OK: Verdict.GO, Level.WARN: Verdict.GO, Level.UNKNOWN: Verdict.HOLD,
    Level.FAIL: Verdict.NO_GO,
}  # fmt: skip


def services(site: Site, more: Mapping[str, ServiceSpec] | None = None) -> dict[str, ServiceSpec]:
    """Every service whose build or arguments can be queried; `more`: a run's own."""
    return {**site.service_specs(), **(more or {}), "baseline": site.baseline_spec()}


def build_here(
    site: Site, connect: Connect, service: str = "baseline",
    more: Mapping[str, ServiceSpec] | None = None,
) -> Engine | Absent:  # fmt: skip
    """The build of a service, a program of this machine or in an image; what is missing if it
    cannot be had (no such service, no such program here, no container engine, no image)."""
    specs = services(site, more)
    try:
        spec = specs.get(service)
        if spec is not None and isinstance(spec.runs, ProcessSpec):
            own = HostProgram(spec.runs.argv, dict(spec.runs.env))
            return own if own.program else Absent("it has no program")
        return build_of(specs, connect, service=service)
    except ConsoleError as error:
        return Absent(one_line(str(error), 200))


def checkpoint(
    site: SiteModel, what: str, *, kind: str, engine: str, args: Sequence[str], ctx: int | None,
    lent: Command | None = None, own: Command | None = None, include: Sequence[str] = (),
    exclude: Sequence[str] = (), to: Path | None = None, beside: bool = False,
    line_bps: float | None = None, build: AskedBuild = lambda: None,
    named: bool = False,
) -> Preflight:  # fmt: skip
    """Whether a checkpoint fits under a loader; see `loader_for`, `Ask` and `machine_for`. `own`:
    the baseline's command line, if the site has it.
    `line_bps`: bytes a second of the network line, if given. `build`: the one that would load a
    GGUF, which is asked too where it can say; `named`: it is the one that is meant. Raises
    ConsoleError."""
    machine = machine_for(site, to, beside=beside)
    if line_bps:
        machine = replace(machine, line_bps=line_bps, given={**machine.given, "line_bps": "given"})
    loader = loader_for(site, kind, engine, args, ctx, lent, own)
    ask = Ask(what, loader, tuple(include), tuple(exclude), to, beside)
    sure = named or lent is not None or loader.own
    known = cache(build)
    report = preflight(ask, machine, site, _by(known, loader, sure=sure), Asking(known, sure=sure))
    if not named or speaks_gguf(fitting(loader, report.chosen.format), report.chosen.format):
        return report
    words = "it was not asked: only llama.cpp's tell what they take without a card"
    return replace(report, findings=(*report.findings, Finding(Level.WARN, "the build", words)))


def suggestion(
    site: SiteModel, what: str, *, kind: str, engine: str, args: Sequence[str], ctx: int | None,
    own: Command | None = None, include: Sequence[str] = (), exclude: Sequence[str] = (),
    to: Path | None = None, beside: bool = False, top: int = TOP,
    build: AskedBuild = lambda: None, named: bool = False,
) -> Suggestion:  # fmt: skip
    """What of a repository fits, on the machine that `checkpoint` judges, with the engine of the
    baseline that comes back (`own`, or the site's `args`). Raises ConsoleError."""
    loader = loader_for(site, kind, engine, args, ctx, own=own)
    ask = Ask(what, loader, tuple(include), tuple(exclude), to, beside)
    machine = machine_for(site, to, beside=beside)
    known, sure = cache(build), named or loader.own
    return suggest(
        ask, machine, site, _by(known, loader, sure=sure, search=True), top,
        Asking(known, sure=sure),
    )  # fmt: skip


def _by(build: AskedBuild, loader: Loader, *, sure: bool, search: bool = False) -> ByBuild:
    """Asks the build, which is looked for once. `sure`: it is the one that would serve. `search`:
    what fits is sought, which a build that nobody names keeps from nothing."""
    known = cache(build)
    # a baseline of another engine does not load a GGUF, so that no build is named at all
    named = sure and fitting(loader, Format.GGUF).own == loader.own
    architectures: Kept = {}
    headers: Kept = {}

    def by_build(header: Header, plan: LoaderPlan, assessment: Assessment) -> list[Finding]:
        seen = known()
        own = None if isinstance(seen, Absent) else seen
        if own is not None and not assessment.served_by:
            findings = _once(architectures, header, lambda: _knows(own, header, sure=sure))
            if not all(finding.level in (Level.OK, Level.WARN) for finding in findings):
                return [*findings, *header_checks.unasked(header)]  # it says nothing of the rest
        elif isinstance(seen, Absent) and (named or not search) and not assessment.served_by:
            findings = absent.findings(seen, loader, header, sure=named)
        else:
            findings = []
        # what serves with its options was asked by whoever started it
        refused = [] if own is None or loader.served else options.findings(own, loader, sure=sure)
        rest = _once(headers, header, lambda: _of_header(own, loader, header, sure=sure))
        return [*findings, *refused, *rest, *memory.findings(own, header, plan, assessment)]

    return by_build


def _once(kept: Kept, header: Header, ask: Callable[[], list[Finding]]) -> list[Finding]:
    """The answer on a header, which is kept with it, so that no other has its id."""
    if id(header) not in kept:
        kept[id(header)] = header, ask()
    return kept[id(header)][1]


def _knows(own: Engine, header: Header, *, sure: bool) -> list[Finding]:
    """What a build says of a header's architecture."""
    if not header.architecture:
        return []
    return support.findings(header.architecture, own, sure=sure)


def _of_header(own: Engine | None, loader: Loader, header: Header, *, sure: bool) -> list[Finding]:
    """What a build says of a header, whatever the plan; without one, what every build would say."""
    if own is None:
        return header_checks.unasked(header)
    types = tensor_types.findings(own, loader, header, sure=sure)
    return [*types, *whole_header.findings(own, header, sure=sure)]


class Asking:
    """Asks the build, once about each thing. Only the one that would serve may refuse; where it is
    the baseline's, and another one may be meant, it is named."""

    def __init__(self, build: AskedBuild, *, sure: bool) -> None:
        self._build = build
        self._sure = sure
        self._answers: dict[str, bool | str] = {}
        self._seen_names: set[str] = set()

    def __call__(self, words: Mapping[str, Sequence[str]]) -> Takes:
        new = {name: own for name, own in words.items() if name not in self._seen_names}
        self._seen_names.update(new)
        own = self._build() if new else None
        if own is not None and not isinstance(own, Absent):
            name = one_line(support.called(own), 100).removeprefix("the ")
            refusal = False if self._sure else f"the baseline's {name}"
            taken = options.takes(own, new).items()
            self._answers.update({name: good or refusal for name, good in taken})
        return self._answers

    @cached_property
    def about(self) -> Build | None:
        """What the build tells of itself; None where there is none to ask."""
        own = self._build()
        if own is None or isinstance(own, Absent):
            return None
        build_facts = options.about(own)
        if self._sure:
            return build_facts
        number = build_facts.number if build_facts.splits_rows else None
        return Build(number, True if build_facts.takes_pairs else None)


def host(site: Site, ask: HostAsk, connect: Connect) -> list[Finding]:
    """What this machine offers for a request; engine and compose variables are the site's."""
    env = tuple(site.compose_env.items())
    ask = replace(ask, engine=site.model.engine.host, compose_env=env)
    return list(on_host.findings(ask, machine_for(site.model, ask.disk), connect))


def build(site: Site, ask: BuildAsk, connect: Connect) -> list[Finding]:
    """Every fault of a build that can be known before it, for the cards of this site."""
    from console.checks.lint.rule import facts_of
    from console.checks.preflight.sources import assistant  # a checkpoint needs none of it

    compute = tuple(card.compute for card in machine_for(site.model, None).cards if card.compute)
    facts = replace(facts_of(site), compute=compute)
    what = f"The source tree {ask.source or ask.context}"
    asks = partial(assistant.findings, ask, facts, connect if ask.dockerfile else None)
    return within(BUILD_S, what, asks, "is it on a mount that is gone? `findmnt -T` names it")


def imports(
    client: docker.DockerClient, image: str, modules: Sequence[str], *, python: str = "",
    cancelled: threading.Event | None = None, labels: Mapping[str, str] | None = None,
) -> Sequence[Finding]:  # fmt: skip
    """Whether an image's modules can be imported, if the image can run here at all."""
    from console.checks.preflight.image import check_image, check_imports

    findings = check_image(client, image)
    if worst(findings) is Level.FAIL:
        return findings
    return check_imports(client, image, modules, python=python, cancelled=cancelled, labels=labels)
