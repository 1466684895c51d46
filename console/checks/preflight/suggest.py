"""What of a repository would fit this machine: each quantization, in each way that its engine has,
judged by the code that answers the ordinary question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial

from console.checks.preflight import Level
from console.checks.preflight.checkpoint import (
    Ask,
    AsksBuild,
    ByBuild,
    Judge,
    Judged,
    Known,
    format_,
    known_of,
    loadable,
    named,
    names_all,
)
from console.checks.preflight.compatibility import (
    ENGINES,
    Loader,
    engine_of,
    fitting,
    plan_of,
    speaks_gguf,
)
from console.checks.preflight.readings import Described, contents_of, described, listing_of, within
from console.checks.preflight.visible import seen
from console.common.errors import ConsoleError, UsageError
from console.config.site.site import SiteModel
from console.host.sample import Machine
from console.models.hub import local_files as here
from console.models.hub.checkpoint import Format, WeightSet
from console.models.hub.listing import Listing
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.loader_plan import LlamaPlan, LoaderPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import labels
from console.models.suggest.ranking import Cost, Merits, order
from console.models.suggest.search import (
    MIN_CONTEXT,
    Fit,
    FitResult,
    Judgement,
    Search,
    Trial,
    contexts,
)
from console.models.suggest.ways import Args, ways

TOP = 5
READERS = 4
"""Sets whose headers are read at once, each with few connections."""
MAX_SETS = 64
"""Sets of a repository that are looked at, the largest first."""
CTX_FLAGS = {LlamaPlan: "-c", SglangPlan: "--context-length", VllmPlan: "--max-model-len"}
KNOWN = ", ".join(name for name, engine in ENGINES.items() if engine.format is not None)


@dataclass(frozen=True, slots=True)
class Case:
    """A set that was read, what is to load it, and what of it fits."""

    known: Known
    loader: Loader
    plan: LoaderPlan
    search: Search
    result: FitResult

    @property
    def name(self) -> str:
        return named(self.known.chosen)

    @property
    def bits(self) -> float:
        """Bits per weight, the measure of quality; 0 if they are not known."""
        facts = self.known.facts
        weights = [weight for weight in facts.weights if weight.elements] if facts else []
        elements = sum(weight.elements for weight in weights)
        return 8 * sum(weight.bytes for weight in weights) / elements if elements else 0.0

    def arguments(self, fit: Fit) -> Args:
        return _arguments(self.loader, self.plan, fit.args, fit.ctx)


@dataclass(frozen=True, slots=True)
class Row:
    """One set in the fastest placement that fits; `args` are the engine's whole arguments.
    `longer`: a slower placement with a far longer context."""

    case: Case
    fit: Fit
    judged: Judgement
    longer: Row | None = None

    @property
    def args(self) -> Args:
        return self.case.arguments(self.fit)

    @property
    def merits(self) -> Merits:
        trial = Trial(self.judged)
        kind, ctx = self.fit.way.kind, self.fit.ctx
        return Merits(trial.verdict, trial.streams, kind, self.case.bits, ctx)

    @property
    def engine(self) -> str:
        case = self.case
        return engine_of(case.loader, case.plan, case.known.chosen.format)

    @property
    def sum(self) -> Assessment:
        assert self.judged.assessment is not None
        return self.judged.assessment


@dataclass(frozen=True, slots=True)
class Nearest:
    """A set that does not fit, in the placement that lacks least."""

    name: str
    fit: Fit


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`rows`: the best of what fits, in the order of `ranking`; `more`: how many are not shown.
    `unknown` and `left_out`: (set, why it is not said to fit, or was not looked at). `nearest`:
    what does not fit, the smallest need first."""

    listing: Listing
    machine: Machine
    rows: tuple[Row, ...]
    more: int = 0
    unknown: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    nearest: tuple[Nearest, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The best one; UNKNOWN where nothing is known to fit and something is not known."""
        if self.rows:
            order = (Verdict.GO, Verdict.STREAMING, Verdict.TIGHT)
            return min((row.judged.verdict for row in self.rows), key=order.index)
        return Verdict.UNKNOWN if self.unknown else Verdict.NO_GO


def suggest(
    ask: Ask, machine: Machine, site: SiteModel, by_build: ByBuild | None = None, top: int = TOP,
    asks: AsksBuild | None = None,
) -> Suggestion:  # fmt: skip
    """Search every set of the repository; `by_build` is asked about the rows that are shown, `asks`
    about options that not every build has. Raises ConsoleError if nothing can be said.

    Flags that were given stay in every row. The baseline's own say how that model is placed, and
    are left out.
    """
    if ask.loader.kind == "convert":
        raise UsageError("--suggest converts nothing", hint="leave --loader convert out")
    if ask.loader.engine and ENGINES[ask.loader.engine].format is None:
        raise UsageError(f"--suggest knows no placements of {ask.loader.engine}", hint=KNOWN)
    if ask.loader.own:
        ask = replace(ask, loader=of_another_model(ask.loader))
    machine, unseen = seen(machine, ask.loader.env)
    listing = listing_of(ask.what)
    listing.require_access()
    about = described(listing)
    contents = contents_of(listing, ask.include or within(ask.what), ask.exclude, about)
    if not contents.sets:
        contents.choose()
    judge = Judge(ask, machine, site, listing, tuple(unseen), asks=asks)
    sets, left_out = _candidates(ask.loader, listing, contents.sets)
    cases, unknown = list[Case](), list[tuple[str, str]]()
    for chosen, read in zip(sets, _read(listing, about, sets), strict=True):
        if isinstance(read, str):
            unknown.append((named(chosen), read))
        elif read.facts is None or any(finding.level is Level.FAIL for finding in read.findings):
            why = Judged(read.findings, None, read.why)
            broken = why.verdict is Verdict.NO_GO
            (left_out if broken else unknown).append((named(chosen), why.because))
        else:
            cases.append(_searched(judge, listing, read))
    unknown += [(case.name, case.result.unknown) for case in cases if case.result.unknown]
    rows = sorted(
        (Row(case, fit, fit.trial.judgement) for case in cases if (fit := case.result.fit)),
        key=_order,
    )
    row_judge = (
        partial(_judge_with_build, replace(judge, by_build=by_build), listing) if by_build else None
    )
    table = _best(rows, top, row_judge)
    nearest = [
        Nearest(case.name, case.result.nearest) for case in cases
        if case.result.nearest and not case.result.unknown
    ]  # fmt: skip
    return Suggestion(
        listing, machine, tuple(table.shown), len(rows) - len(table.tried),
        (*unknown, *table.refused), tuple(left_out),
        tuple(sorted(nearest, key=lambda candidate: candidate.fit.trial.short_by)),
    )  # fmt: skip


def of_another_model(loader: Loader) -> Loader:
    """A baseline's loader for another model: its engine, and none of its flags, which were seen to
    serve and say how the baseline's model is placed."""
    return replace(loader, args=(), env={}, of="", own=False, served=False)


def _candidates(
    loader: Loader, listing: Listing, sets: Sequence[WeightSet]
) -> tuple[list[WeightSet], list[tuple[str, str]]]:
    """The whole sets that the engine reads, the largest first, and why the others are none."""
    good, left_out = list[WeightSet](), list[tuple[str, str]]()
    for weight_set in sorted(sets, key=lambda candidate: -(candidate.size or 0)):
        other = format_(fitting(loader, weight_set.format), weight_set)
        if not weight_set.whole:
            left_out.append((named(weight_set), weight_set.gap))
        elif other:
            left_out.append((named(weight_set), other[0].words.partition(": ")[2]))
        elif not loadable(listing, weight_set):
            left_out.append((named(weight_set), "no engine reads it as it lies here"))
        elif len(good) == MAX_SETS:
            left_out.append(
                (named(weight_set), f"more than {MAX_SETS} sets: name it with --include")
            )
        else:
            good.append(weight_set)
    return good, left_out


def _read(listing: Listing, about: Described, sets: Sequence[WeightSet]) -> Iterator[Known | str]:
    """What each set's headers tell, or why they could not be read; each is read once."""

    def read(weight_set: WeightSet) -> Known | str:
        try:
            if not names_all(listing, weight_set):
                return "its index names files that are not there"
            return known_of(listing, weight_set, about)
        except ConsoleError as error:
            return "; ".join(part for part in (str(error), error.detail) if part)

    with ThreadPoolExecutor(READERS, "suggest") as pool:
        yield from pool.map(read, sets)


def _searched(judge: Judge, listing: Listing, known: Known) -> Case:
    facts = known.facts
    assert facts is not None
    loader = _with_option(fitting(judge.ask.loader, known.chosen.format))
    plan = plan_of(loader, known.chosen.format)
    files_here = here.look(listing, known.chosen.files, judge.ask.to)
    names = tuple(labels(judge.machine.cards))

    @cache
    def judged(args: Args, ctx: int) -> Judged:
        trial_loader = replace(loader, args=_arguments(loader, plan, args, ctx), ctx=None)
        return judge.of(known, trial_loader, files_here, advised=False)

    def on_cards(sum_: Assessment) -> bool:
        full = any(limit.where in names for limit in sum_.short)
        return not full and not any(reason.startswith(names) for reason in sum_.tight if names)

    fixed = _fixed(plan, facts)
    tried = [fixed] if fixed else contexts(facts.context_length or MIN_CONTEXT)
    search = Search(ways(facts, plan, judge.machine.cards), tried, judged, on_cards)
    return Case(known, loader, plan, search, search.fastest())


def _arguments(loader: Loader, plan: LoaderPlan, args: Args, ctx: int) -> Args:
    """What was given, the placement, and the context unless the given words have it."""
    if loader.ctx is None and getattr(plan, "ctx", None):
        return (*loader.args, *args)
    return (*loader.args, *args, CTX_FLAGS[type(plan)], str(ctx))


def _fixed(plan: LoaderPlan, facts: ModelFacts) -> int | None:
    """The context that was asked for; None if it is to be found."""
    if isinstance(plan, LlamaPlan) and plan.whole_ctx:
        return facts.context_length
    return getattr(plan, "ctx", None)


def _with_option(loader: Loader) -> Loader:
    """The way of loading as an option, so that a line that is pasted has it."""
    if loader.kind != "resident" or not speaks_gguf(loader, Format.GGUF):
        return loader
    flags = ("--no-mmap",) if loader.engine == "ik_llama.cpp" else ("--load-mode", "none")
    return replace(loader, kind="", args=(*loader.args, *flags))


def _judge_with_build(judge: Judge, listing: Listing, row: Row) -> Judged:
    """The row judged again by a judge that asks the build."""
    case = row.case
    loader = replace(case.loader, args=row.args, ctx=None)
    files_here = here.look(listing, case.known.chosen.files, judge.ask.to)
    return judge.of(case.known, loader, files_here, advised=False)


def _order(row: Row) -> tuple[object, ...]:
    return *order(row.merits), row.case.name


Confirm = Callable[[Row], Judgement]


@dataclass(slots=True)
class _Table:
    """The first rows that the build confirms, and why others were refused."""

    confirm: Confirm | None
    shown: list[Row] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    tried: list[Case] = field(default_factory=list)

    def take(self, rows: Sequence[Row], most: int) -> None:
        """Of rows that were not tried yet, as many as make `most` with those that stand here."""
        for row in rows:
            if len(self.shown) >= most:
                return
            if all(row.case is not case for case in self.tried):
                self.tried.append(row.case)
                self._try(row)

    def _try(self, row: Row) -> None:
        fast = row.case.search.longest(row.fit)
        slow = row.case.search.longer(fast)
        kept = self._confirmed(replace(row, fit=fast, judged=fast.trial.judgement))
        longer = self._confirmed(Row(row.case, slow, slow.trial.judgement)) if slow else None
        if kept or longer:
            self.shown.append(replace(kept, longer=longer) if kept else longer or row)

    def _confirmed(self, row: Row) -> Row | None:
        judged = self.confirm(row) if self.confirm else row.judged
        if judged.verdict not in (Verdict.NO_GO, Verdict.UNKNOWN):
            return replace(row, judged=judged)
        self.refused.append((f"{row.case.name}, {row.fit.words}", judged.because))
        return None


def _best(rows: Sequence[Row], top: int, confirm: Confirm | None) -> _Table:
    """The best `top` rows. Among several are the best of each class of cost: who wants the speed or
    the quality that the first row does not have sees what it costs."""
    table = _Table(confirm)
    for cost in Cost if top > 1 else ():
        of_class = [row for row in rows if row.merits.cost is cost]
        table.take(of_class, min(top, len(table.shown) + 1))
    table.take(rows, top)
    table.shown.sort(key=_order)
    return table
