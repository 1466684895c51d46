"""Whether a checkpoint is worth its download: its contents, its size in memory, what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from console.checks.preflight import Finding, Level, compatibility, load_format
from console.checks.preflight import header as header_checks
from console.checks.preflight import host as host_checks
from console.checks.preflight.compatibility import (
    ENGINES,
    Loader,
    contested_by,
    engine_of,
    fitting,
    method_of,
    plan_of,
    speaks_gguf,
)
from console.checks.preflight.on_start import LISTENS, OPENED, not_there, parser_tokens
from console.checks.preflight.readings import (
    READ_S,
    Described,
    contents_of,
    described,
    facts_of,
    listing_of,
    shard_headers,
    with_draft,
    within,
)
from console.checks.preflight.visible import TITLE as VISIBLE_CARDS
from console.checks.preflight.visible import seen
from console.checks.preflight.whose_model import ANOTHER, another_model
from console.common.errors import ConsoleError, Exit
from console.common.text import one_line
from console.common.units import format_bytes
from console.config.site.site import DECLARED
from console.host.sample import Machine
from console.models.gguf.byte_source import GgufError
from console.models.gguf.header import Header
from console.models.gguf.read import Reading, check_shards, merged
from console.models.hub import local_files as here
from console.models.hub import model_config
from console.models.hub.checkpoint import Contents, Format, WeightSet
from console.models.hub.listing import Listing
from console.models.hub.local_files import Here
from console.models.hub.progress import download_time, seconds_for
from console.models.sizing import assessment as fit_text
from console.models.sizing.assess import assess
from console.models.sizing.assessment import ORDER, Assessment, Reference, Verdict
from console.models.sizing.flags.builds import Takes
from console.models.sizing.loader_plan import Build, LlamaPlan, LoaderPlan, SglangPlan
from console.models.sizing.model_facts import BadFacts, ModelFacts

if TYPE_CHECKING:
    from console.config.site.site import SiteModel

ByBuild = Callable[[Header, LoaderPlan, Assessment], list[Finding]]


class AsksBuild(Protocol):
    """Asks the build that would load a GGUF; `about`: what it tells of itself, None without one."""

    def __call__(self, words: Mapping[str, Sequence[str]]) -> Takes:
        """Which of some options it takes."""

    @property
    def about(self) -> Build | None: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """The operator's question. `what` as typed; `to` is where it would be downloaded; `beside`: the
    baseline goes on serving."""

    what: str
    loader: Loader = field(default_factory=Loader)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    to: Path | None = None
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """The answer. `assessment` is None if too little is known; `why` then says what."""

    contents: Contents
    chosen: WeightSet
    here: Here
    machine: Machine
    assessment: Assessment | None
    findings: tuple[Finding, ...]
    why: str = ""
    architecture: str = ""
    arguments: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict, see `Judged`."""
        return Judged(self.findings, self.assessment).verdict

    @property
    def because(self) -> str:
        """Why, see `Judged`."""
        return Judged(self.findings, self.assessment, self.why).because

    @property
    def download_s(self) -> float | None:
        return seconds_for(self.here.to_fetch, self.machine.line_bps)

    def lines(self, width: int = fit_text.WIDTH) -> list[str]:
        """Verdict, files, disk, line, checks, sums, and the verdict with all its reasons; clean."""
        listing = self.contents.listing
        pinned = f"  at {listing.commit[:12]}" if listing.commit else ""
        verdict = one_line(f"{self.verdict}: {self.because}", width)
        out = [verdict, "", f"{one_line(listing.repo, 60)}{pinned}"]
        for line in [*self.contents.lines(), self.here.words, self._line()]:
            out += fit_text.wrapped(f"  {line}", "    ", width) if line else []
        if self.arguments:
            out += fit_text.wrapped(f"  loaded as: {self.arguments}", "    ", width)
        out.append("")
        for finding in self.findings:
            out += finding_lines(finding, width)
        out.append("")
        if self.assessment is not None:
            out += fit_text.lines(self.assessment, width)
        else:
            out += fit_text.wrapped(f"memory: not calculated: {self.why}", "  ", width)
        return [*out, "", *fit_text.wrapped(f"{self.verdict}: {self.because}", "  ", width)]

    def _line(self) -> str:
        origin = self.machine.given.get("line_bps", "")
        return download_time(self.here.to_fetch, self.machine.line_bps, origin)

    def to_json(self) -> dict[str, Any]:
        assessment, listing = self.assessment, self.contents.listing
        return {
            "repo": listing.repo, "commit": listing.commit, "verdict": str(self.verdict),
            "because": self.because, "architecture": self.architecture,
            "set": {"label": self.chosen.label, "files": len(self.chosen.files),
                    "bytes": self.chosen.size, "whole": self.chosen.whole},
            "to_fetch": self.here.to_fetch, "download_s": self.download_s,
            "findings": [{**asdict(each), "level": str(each.level)} for each in self.findings],
            "terms": [asdict(term) for term in assessment.terms] if assessment else [],
            "limits": [{**asdict(limit), "short_by": limit.short_by}
                       for limit in (assessment.limits if assessment else ())],
            "would_make_it_go": list(assessment.would_make_it_go) if assessment else [],
            "ceiling_tok_s": assessment.ceiling_tok_s if assessment else None,
            "envelope": assessment.envelope.to_json() if assessment else None,
        }  # fmt: skip


def finding_lines(finding: Finding, width: int = fit_text.WIDTH) -> list[str]:
    out = fit_text.wrapped(finding.text, " " * 8, width)
    if finding.hint:
        out += fit_text.wrapped(f"        hint: {finding.hint}", " " * 14, width)
    return out


def preflight(
    ask: Ask, machine: Machine, site: SiteModel, by_build: ByBuild | None = None,
    asks: AsksBuild | None = None,
) -> Preflight:  # fmt: skip
    """Look the checkpoint up and judge it; `by_build` asks the build that would load a GGUF how
    much memory it reserves, `asks` which options it takes. Raises ConsoleError if nothing can
    be said.

    Figures measured on the site's baseline are used if it is asked about with exactly the flags it
    serves with today.
    """
    machine, unseen = seen(machine, ask.loader.env)
    listing = listing_of(ask.what)
    about = described(listing)
    contents = contents_of(listing, ask.include or within(ask.what), ask.exclude, about)
    chosen = contents.choose()
    elsewhere = another_model(ask.loader, listing, chosen)
    judge = Judge(ask, machine, site, listing, (*unseen, *elsewhere), by_build, asks)
    known = known_of(listing, chosen, about)
    loader = fitting(ask.loader, chosen.format)
    files_here = here.look(listing, contents.files, ask.to)
    judged = judge.of(known, loader, files_here)
    if judged.assessment is not None and judged.verdict in (Verdict.TIGHT, Verdict.NO_GO):
        others = offers(judge, listing, about, contents.sets, known, judged.verdict)
        judged.assessment.would_make_it_go += tuple(others)
    arguments = " ".join(loader.args)
    return Preflight(
        contents, chosen, files_here, machine, judged.assessment, judged.findings, known.why,
        known.facts.architecture if known.facts else "",
        one_line(f"{arguments} ({loader.of})" if loader.of else arguments, 300),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A set of weights as it was read, whatever is to load it; `why` there are no `facts`."""

    chosen: WeightSet
    findings: tuple[Finding, ...] = ()
    facts: ModelFacts | None = None
    header: Header | None = None
    why: str = ""


def known_of(listing: Listing, chosen: WeightSet, about: Described) -> Known:
    """What the listing and the headers tell of one set; its bad headers are findings."""
    findings = [*access(listing), *whole(chosen)]
    if listing.refused is not None:
        why = "the hub shows the files of this repository, not what is in them"
        return Known(chosen, tuple(findings), why=why)
    if not chosen.whole:
        return Known(chosen, tuple(findings), why="one part of a set says too little")
    readings = list[Reading]()
    try:
        if chosen.format is Format.GGUF:
            readings = shard_headers(listing, chosen)
            findings += shards(chosen, readings)
        facts = facts_of(listing, chosen, readings, about)
    except (GgufError, BadFacts) as error:
        why = "; ".join(part for part in (str(error), error.hint) if part)
        if not isinstance(error, GgufError) or error.exit_code is Exit.NO_GO:
            findings.append(Finding(Level.FAIL, "header", str(error), error.hint))
        return Known(chosen, tuple(findings), why=why)
    header = merged([reading.header for reading in readings]) if readings else None
    return Known(chosen, tuple(findings), facts, header)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of one set under one loader; `assessment` None if too little is known, and
    `why` then says what."""

    findings: tuple[Finding, ...]
    assessment: Assessment | None
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """Any failed check is a NO-GO, whatever the memory says."""
        if any(finding.level is Level.FAIL for finding in self.findings):
            return Verdict.NO_GO
        if self.assessment is None:
            return Verdict.UNKNOWN
        if not not_known(self.findings):
            return self.assessment.verdict
        return max(self.assessment.verdict, Verdict.UNKNOWN, key=ORDER.index)

    @property
    def because(self) -> str:
        failed = [finding for finding in self.findings if finding.level is Level.FAIL]
        words = [f"{finding.title}: {finding.words}" for finding in failed]
        if self.assessment is not None and self.assessment.verdict is Verdict.NO_GO:
            words.append(self.assessment.because)
        elif self.assessment is not None and not failed:
            doubts, reasons = not_known(self.findings), self.assessment.because
            unknown = self.assessment.verdict is Verdict.UNKNOWN
            words += [doubts, reasons] if doubts and unknown else [doubts or reasons]
        elif self.why and not failed:
            words.append(self.why)
        if self.verdict in (Verdict.GO, Verdict.STREAMING, Verdict.TIGHT):
            words += dict.fromkeys(finding.holds for finding in self.findings if finding.holds)
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class Judge:
    """One question's flags, machine and site, under which any set of weights of a listing is judged
    alike."""

    ask: Ask
    machine: Machine
    site: SiteModel
    listing: Listing
    unseen: tuple[Finding, ...] = ()
    by_build: ByBuild | None = None
    asks: AsksBuild | None = None
    _kept: dict[tuple[str, ...], tuple[Finding, ...]] = field(default_factory=dict)
    _experts: dict[tuple[object, ...], tuple[int | None, tuple[Finding, ...]]] = field(
        default_factory=dict
    )

    def of(self, known: Known, loader: Loader, files_here: Here, *, advised: bool = True) -> Judged:
        """`loader` fits the set's format; `files_here`: its files here. `advised`: see `assess`."""
        ask, chosen, facts = replace(self.ask, loader=loader), known.chosen, known.facts
        plan = plan_of(self._settled(loader, chosen.format), chosen.format)
        plan, weights = self._with_experts(plan, loader, facts)
        plan = with_draft(plan, inside=loader.inside, of_service=bool(loader.of))
        findings = [
            *self.unseen, *known.findings, *self._standing(known, loader, plan, files_here),
            *not_there(loader, chosen.format), *weights,
            *parser_tokens(loader, self.listing, facts.classes if facts else ()),
        ]  # fmt: skip
        if facts is None:
            return Judged(tuple(findings), None, known.why)
        assessment = assess(
            facts, plan, self.machine, advised=advised,
            reference=_measured(ask, self.site, Path(chosen.files[0].path).name),
            ram_read_bps=self.site.machine.memory_read,
        )  # fmt: skip
        if known.header is not None and self.by_build is not None:
            findings += self.by_build(known.header, plan, assessment)
        if known.header is not None and isinstance(plan, LlamaPlan) and not assessment.served_by:
            findings += header_checks.of_mapping(known.header, maps=plan.maps)
        return Judged(tuple(findings), assessment)

    def _with_experts(
        self, plan: LoaderPlan, loader: Loader, facts: ModelFacts | None
    ) -> tuple[LoaderPlan, tuple[Finding, ...]]:
        """The plan with the bytes of the experts that kt-kernel reads, and what is wrong there."""
        if not isinstance(plan, SglangPlan) or not plan.kt_weights or facts is None:
            return plan, ()
        key = plan.kt_weights, plan.kt_method, plan.model, facts
        if key not in self._experts:
            size, findings = load_format.kt_weights(
                plan, facts, Path(self.listing.repo), inside=loader.inside,
                here=self.ask.beside or self._measured_here,
            )  # fmt: skip
            self._experts[key] = size, () if loader.served else tuple(findings)
        size, cached_findings = self._experts[key]
        return replace(plan, kt_experts=size), cached_findings

    @property
    def _measured_here(self) -> bool:
        """Whether cards and memory are this machine's, and not declared by the site."""
        return DECLARED not in map(self.machine.given.get, ("cards", "ram_total"))

    def _settled(self, loader: Loader, format_: Format) -> Loader:
        """The loader with what is known of its build: a baseline that served takes its options."""
        if not speaks_gguf(loader, format_):
            return loader
        words = contested_by(loader)
        if loader.served:
            return replace(loader, takes=dict.fromkeys(words, True), build=Build(serves=True))
        if self.asks is None:
            return loader
        takes = self.asks(words) if words else {}
        plan = plan_of(loader, format_)
        depends = isinstance(plan, LlamaPlan) and plan.depends_on_build
        return replace(loader, takes=takes, build=self.asks.about if depends else None)

    def _standing(
        self, known: Known, loader: Loader, plan: LoaderPlan, files_here: Here
    ) -> tuple[Finding, ...]:
        """Findings that depend on few of the flags, and are kept for the next question."""
        chosen, facts, ask = known.chosen, known.facts, self.ask
        key = (chosen.format, chosen.stem, loader.engine, loader.kind, method_of(plan),
               getattr(plan, "split_mode", ""), getattr(plan, "kt_weights", ""),
               getattr(plan, "load_format", ""), str(self.by_build is None))  # fmt: skip
        if key not in self._kept:
            header = known.header if self.by_build is None else None
            self._kept[key] = (
                *format_(loader, chosen), *load_format.findings(plan, chosen, self.listing),
                *disk(ask.to, files_here, self.machine),
                *(beside(self.machine) if ask.beside else ()),
                *(table(loader, chosen, facts, self.machine) if facts else ()),
                *(self._unasked(chosen, header) if facts and header is not None else ()),
            )  # fmt: skip
        return self._kept[key]

    def _unasked(self, chosen: WeightSet, header: Header) -> tuple[Finding, ...]:
        """What a header alone tells, whatever the flags."""
        key = "header", chosen.format, chosen.stem
        if key not in self._kept:
            self._kept[key] = tuple(header_checks.unasked(header))
        return self._kept[key]


MAX_OFFERS = 8
"""Other sets whose headers are read for an offer."""


def offers(
    judge: Judge, listing: Listing, about: Described, sets: Sequence[WeightSet], known: Known,
    verdict: Verdict,
) -> Iterator[str]:  # fmt: skip
    """Other whole sets that the patterns take and that have a better verdict, judged as this one
    was, the largest first, as far as the first GO."""
    size = known.chosen.size or 0
    others = [
        candidate
        for candidate in sets
        if candidate is not known.chosen and candidate.size and loadable(listing, candidate)
    ]
    for other in sorted(others, key=lambda candidate: -(candidate.size or 0))[:MAX_OFFERS]:
        if other.format is known.chosen.format and (other.size or 0) >= size:
            continue
        try:
            if not names_all(listing, other):
                continue
            read = known_of(listing, other, about)
        except ConsoleError:  # what cannot be read is no offer
            continue
        loader = fitting(judge.ask.loader, other.format)
        files_here = here.look(listing, other.files, judge.ask.to)
        better = judge.of(read, loader, files_here, advised=False).verdict
        if better is Verdict.UNKNOWN or ORDER.index(better) >= ORDER.index(verdict):
            continue
        yield f"{named(other)} ({format_bytes(other.size or 0)}): {better}"
        if better is Verdict.GO:
            return


def loadable(listing: Listing, weight_set: WeightSet) -> bool:
    """Whether an engine is given this set as it lies here: a whole GGUF, or whole safetensors with
    a config.json beside them; copies in a trainer's own format are not."""
    beside = _in_folder(weight_set, model_config.CONFIG)
    if weight_set.format is Format.SAFETENSORS:
        return weight_set.whole and listing.find(beside) is not None
    return weight_set.whole and weight_set.format is Format.GGUF


def names_all(listing: Listing, weight_set: WeightSet) -> bool:
    """Whether the index in the directory of a set, if there is one, names only files that are
    there. Raises HubError. The index of the outermost directory was read with the listing."""
    path = _in_folder(weight_set, model_config.INDEX)
    if not listing.commit or path == model_config.INDEX or listing.find(path) is None:
        return True
    index = model_config.read_index(
        model_config.fetch_json(listing, path, limit=model_config.INDEX_LIMIT, deadline_s=READ_S)
    )
    folder = path.removesuffix(model_config.INDEX)
    return all(listing.find(folder + name) is not None for name in index.files)


def _in_folder(weight_set: WeightSet, name: str) -> str:
    folder = weight_set.stem.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def named(weight_set: WeightSet) -> str:
    """A set's label, with its directory if that says more."""
    folder, _, stem = weight_set.stem.rpartition("/")
    label = weight_set.label if weight_set.quantization else f"{weight_set.label} {stem}"
    is_complete = not folder or (
        weight_set.quantization and weight_set.quantization.lower() in folder.lower()
    )
    return one_line(label if is_complete else f"{label} in {folder}/", 80)


def _measured(ask: Ask, site: SiteModel, model: str) -> Reference | None:
    """What was measured of the baseline; it `serves` if `model` is one of its files."""
    known = site.baseline.reference
    if known is None or not ask.loader.own or ask.loader.ctx is not None:
        return None
    names = {Path(path).name for path in site.baseline.models}
    pace = (known.tok_s, max(known.tok_s, known.best or 0.0))
    serves = ask.loader.served and model in names
    return Reference(f"{site.name}'s baseline", pace, serves=serves)


KT_IDLE = (
    "kt-kernel",
    "no --kt-weight-path is given: no expert goes to the processor, the other --kt options do "
    "nothing, and all is counted on the cards, as SGLang alone has it",
    "--kt-weight-path DIRECTORY names the weights of the experts",
)
"""Title, words and hint."""
SHOWN = 5
"""Most problems of a set that are shown."""
BESIDE = "GPU memory beside the baseline"
BY_BUILD = "memory, by the build"
TYPES = "tensor types"
OPTIONS = "options of the build"
NEEDED = (
    BESIDE,
    BY_BUILD,
    TYPES,
    OPTIONS,
    OPENED,
    LISTENS,
    VISIBLE_CARDS,
    header_checks.TITLE,
    ", architecture ",
    ", quantization ",
    ", method ",
    ", attention ",
    ", experts ",
    ANOTHER,
    load_format.TITLE,
    load_format.KT_TITLE,
)
"""Facts that the table must cover: without them nothing is a GO."""


def access(listing: Listing) -> list[Finding]:
    if listing.refused is None:
        return []
    error = listing.refused
    return [Finding(Level.FAIL, "access", str(error), error.hint)]


def whole(chosen: WeightSet) -> list[Finding]:
    if chosen.whole:
        return []
    return [Finding(Level.FAIL, "files", chosen.gap, "no loader takes a part of a set")]


def shards(chosen: WeightSet, readings: Sequence[Reading]) -> list[Finding]:
    """Whether the files hold what their headers promise, and form the set a loader expects."""
    words = [
        f"{one_line(file.path)} lacks {reading.missing_bytes} bytes"
        for file, reading in zip(chosen.files, readings, strict=True) if reading.missing_bytes
    ]  # fmt: skip
    listed = [(file.path, file.size) for file in chosen.files]
    words += check_shards(listed, [reading.header for reading in readings])
    if not words:
        return []
    faults = list(dict.fromkeys(words))[:SHOWN]
    hint = "no loader takes it: fetch what is cut again, or another copy"
    return [Finding(Level.FAIL, "files", "; ".join(faults), hint)]


def format_(loader: Loader, chosen: WeightSet) -> list[Finding]:
    """Whether an engine reads the format: GGUF or safetensors (F-019, seed 001)."""
    if loader.kind == "convert" or loader.engine == "exllamav3":
        return []  # the compatibility table says it
    wants_gguf = speaks_gguf(loader, chosen.format)
    if wants_gguf == (chosen.format is Format.GGUF):
        return []
    engine = loader.engine or ("llama.cpp" if wants_gguf else "this engine")
    words = f"{chosen.label}: {engine} reads {'GGUF' if wants_gguf else 'safetensors'}"
    return [Finding(Level.FAIL, "format", words, "take the other format of the same model")]


def disk(to: Path | None, files_here: Here, machine: Machine) -> list[Finding]:
    """The download's size against the disk: as declared, or measured now at the destination."""
    measured = machine.given.get("disk_free", "").startswith("measured")
    declared = machine.disk_free is not None and not measured
    if to is not None and to.exists() and not to.is_dir():
        hint = "name a directory to download to"
        return [Finding(Level.FAIL, f"disk {to}", "it is a file", hint)]
    if not declared:
        return [] if to is None else [host_checks.disk(to, files_here.to_write)]
    if files_here.to_write == 0:
        return []
    title = f"disk {to or ''}".rstrip()
    return [host_checks.room(title, machine.disk_free or 0, files_here.to_write)]


def beside(machine: Machine) -> list[Finding]:
    """Beside a serving baseline, free memory has to be measured; a declared figure will not do."""
    if machine.cards and all(card.free is not None for card in machine.cards):
        return []
    words = "how much of each card is free beside the baseline is not known here"
    hint = "ask on the machine itself, without declared cards, while the baseline serves"
    return [Finding(Level.UNKNOWN, BESIDE, words, hint)]


def table(
    ask: Loader, chosen: WeightSet, facts: ModelFacts, machine: Machine
) -> tuple[Finding, ...]:
    """What the compatibility table says on engine, format, architecture and quantization."""
    plan = plan_of(ask, chosen.format)
    engine = engine_of(ask, plan, chosen.format)
    gguf, quantization = chosen.format is Format.GGUF, chosen.quantization
    question = compatibility.Question(
        engine, "gguf" if gguf else "safetensors", facts.architecture,
        quantization.lower() if gguf else compatibility.computes(facts, plan, quantization),
        method_of(plan),
        getattr(plan, "split_mode", ""), machine,
        not getattr(plan, "kt_weights", ""),
        getattr(plan, "dtype", "auto"), *compatibility.kernels_of(ask, engine, facts, plan),
        facts.classes, None if getattr(plan, "at_least", False) else getattr(plan, "release", None),
    )  # fmt: skip
    findings = (*compatibility.check(question), *_types(ask, engine, facts))
    if like := ENGINES[engine].like:
        words = f"its memory is calculated as {like}'s: only a first estimate"
        findings = (*findings, Finding(Level.WARN, engine, words))
    if isinstance(plan, SglangPlan):
        findings = (*findings, *load_format.if_converted(question, plan))
        if plan.kt_idle:
            findings = (*findings, Finding(Level.WARN, *KT_IDLE))
    return findings


def _types(ask: Loader, engine: str, facts: ModelFacts) -> list[Finding]:
    """Whether the engine has the types of the file's tensors: ik_llama.cpp has its own."""
    if not facts.of_ik or engine == "ik_llama.cpp":
        return []
    words = (
        f'{", ".join(facts.of_ik[:3])} belong to ik_llama.cpp: llama.cpp ends with "invalid ggml '
        'type"'
    )
    hint = "--engine ik_llama.cpp if that is the build, else another quantization of the model"
    # without a name it may well be ik_llama.cpp's server: both programs are called llama-server
    level = Level.FAIL if ask.engine else Level.UNKNOWN
    return [Finding(level, f"{engine}, {TYPES}", words, hint)]


def not_known(findings: Iterable[Finding]) -> str:
    """Needed facts that the table does not cover, in words; empty if it covers all."""
    missing = [
        finding for finding in findings
        if finding.level is Level.UNKNOWN and any(word in finding.title for word in NEEDED)
    ]  # fmt: skip
    return "; ".join(f"{finding.title}: {finding.words}" for finding in missing)
