"""How a checkpoint is to be loaded, and the compatibility table: what an engine accepts, checked
before anything is downloaded.

The table is data (compatibility.yaml), read strictly and applied here. compatibility.json has the
same values: reading the YAML would take a sixth of a check. If a rule would refuse but one of its
facts is unknown here, or if no rule applies, the answer is `unknown`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints

from console.checks.preflight import Finding, Level
from console.common import record
from console.common.errors import UsageError
from console.common.options import engines
from console.common.options.command_line import given
from console.common.options.since import is_older, release_in
from console.common.options.table import table as options_of
from console.common.text import one_line
from console.config.validation import Strict, Text, load
from console.host.sample import Machine
from console.models.hub.checkpoint import Format
from console.models.hub.model_config import kind
from console.models.sizing.combinations.table import NAMES
from console.models.sizing.flags.builds import Takes, build_of_image, contested
from console.models.sizing.flags.converter import conversion_plan
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.loader_plan import Build, LlamaPlan, LoaderPlan, SglangPlan, VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.kernels import IN_WORDS, SWITCHED_OFF, TENSOR
from console.models.sizing.serving.loaded import is_online

TITLE = "the compatibility table is unusable"
TABLE = Path(__file__).with_name("compatibility.yaml")
MLA_OFF = "VLLM_MLA_DISABLE"
"""The variable with which vLLM keeps every head of a latent attention, and takes other kernels."""
EQUAL = 0.10
"""Cards whose memories differ by less than this share of the larger one are equal."""
REQUIRED = ("format", "architecture", "quantization", "method")
"""Facts without which a refusal of the table cannot be excluded."""
JUDGED = (*REQUIRED, "attention", "experts")
"""Facts that, if given, some rule has to cover."""

Capability = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?$")]
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)?$")]
Day = Annotated[str, StringConstraints(pattern=r"^20\d\d-[01]\d-[0-3]\d$")]
Lesson = Annotated[str, StringConstraints(pattern=r"^[FSP]-\d{3}$")]
Column = Literal[
    "format", "architecture", "quantization", "method", "attention", "experts", "split", "compute",
    "cards", "imports",
]  # fmt: skip


class When(Strict):
    """A rule's conditions; a list means one of these, `lacks` one of these flags missing. `below`:
    some card has a smaller compute capability; `from_sm`: every card has at least this one;
    `except_sm`: no card has one of these.
    `converts`: whether kt-kernel's weights are still to be made. `dtype`: what the engine is told
    to compute in, "auto" where it is told nothing."""

    format: list[Text] = []
    architecture: list[Text] = []
    quantization: list[Text] = []
    method: list[Text] = []
    attention: list[Text] = []
    experts: list[Text] = []
    split: list[Text] = []
    dtype: list[Text] = []
    sm: list[Capability] = []
    except_sm: list[Capability] = []
    below: Capability | None = None
    from_sm: Capability | None = None
    lacks: list[Text] = []
    unequal_cards: bool | None = None
    converts: bool | None = None


class From(Strict):
    """The source of a row, and its date."""

    source: Text
    date: Day
    lessons: list[Lesson] = []


class Rule(From):
    """`since`: the first release of the engine of which it holds; older ones refuse."""

    engine: list[Text] = Field(min_length=1)
    about: Column
    when: When
    level: Literal["ok", "warn", "fail", "unknown"]
    words: Text
    hint: Text = ""
    since: Release | None = None


class CardRow(From):
    """The first CUDA toolkit and PyTorch release with kernels for a compute capability."""

    sm: Capability
    cuda: Version
    pytorch: Version | None = None


class DriverRow(From):
    """The oldest driver for a major version of CUDA."""

    cuda: int
    driver: Version


class Table(Strict):
    schema_: Literal["omni.compatibility/v1"] = Field(alias="schema")
    families: dict[Text, list[Text]]
    cards: list[CardRow]
    drivers: list[DriverRow]
    rules: list[Rule]

    def engines(self) -> list[str]:
        return sorted({engine for rule in self.rules for engine in rule.engine})

    def family(self, architecture: str) -> str:
        """The common name of an architecture, or its own if the table has no other."""
        for name, members in self.families.items():
            if architecture in members:
                return name
        return architecture

    def names(self, architecture: str, classes: Iterable[str] = ()) -> set[str]:
        """The names by which rules may call a model: its architecture's, and where the table knows
        none of that, those of its classes."""
        family = self.family(architecture)
        if family != architecture or architecture in self.families:
            return {architecture, family}
        return {
            architecture,
            *(name for class_ in classes if (name := self.family(class_)) != class_),
        }


@cache
def table(path: Path = TABLE) -> Table:
    """Load the table; raises InvalidFile with every problem in it."""
    return _compiled(path) or load(Table, path, TITLE, "reinstall omni-console")


def compiled(path: Path = TABLE) -> str:
    """The text of the JSON file for a table, with the digest of what it was made of."""
    rows = load(Table, path, TITLE, "").model_dump(mode="json", by_alias=True, exclude_unset=True)
    return f"{json.dumps({'of': _digest(path), 'table': rows}, ensure_ascii=False, indent=1)}\n"


def _compiled(path: Path) -> Table | None:
    """What was compiled of exactly this file; None if that is not to be had."""
    try:
        kept = record.load(path.with_suffix(".json"))
        return Table.model_validate(kept["table"]) if kept["of"] == _digest(path) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Question:
    """What is to run on what; empty, or None for `machine`, means unknown.

    `format`: gguf, safetensors, exl3, kt. `architecture` as file or configuration name it.
    `quantization`: fp8, int8, bf16, q4_k_m, ud … `method`: kt-kernel's. `split`: layer, row,
    tensor, graph. `dtype`: as on the engine's command line. `converts`: kt-kernel's weights are
    made of this checkpoint, and not ready. `attention`: its kind, `experts`: of how many weights
    theirs share a scale, as console.models.sizing.serving.kernels names them; "" for a model
    without, and for engines whose own files decide it. `classes`: of transformers, by which a model
    of several parts is known whose `architecture` is that of its language model. `release`: of the
    engine, where it is surely known.
    """

    engine: str
    format: str = ""
    architecture: str = ""
    quantization: str = ""
    method: str = ""
    split: str = ""
    machine: Machine | None = None
    converts: bool = True
    dtype: str = "auto"
    attention: str = ""
    experts: str = ""
    classes: tuple[str, ...] = ()
    release: tuple[int, ...] | None = None


def check(question: Question, rows: Table | None = None) -> tuple[Finding, ...]:
    """Everything the table says on it, the worst first; never empty."""
    rows = rows or table()
    engine = question.engine.lower()
    if engine not in rows.engines():
        known = ", ".join(rows.engines())
        words = f"the table has no such engine; it knows {known}"
        return (Finding(Level.UNKNOWN, f"engine {question.engine}", words),)
    matches: list[tuple[Rule, Finding]] = []
    covered: dict[str, bool] = {}
    untried: dict[str, int] = {}
    for rule in (candidate for candidate in rows.rules if engine in candidate.engine):
        facts = _facts(rule.when, question, rows)
        if False in facts.values():
            continue
        missing = [name for name, holds in facts.items() if holds is None]
        if not missing or (rule.level != "ok" and not set(missing) & {*JUDGED, "split"}):
            # Where a rule objects, "it has kernels for that" has nothing to add.
            covered[rule.about] = covered.get(rule.about, False) or rule.level != "ok"
            matches.append((rule, _finding(question, rule, missing)))
        elif rule.level == "fail":
            untried |= {name: untried.get(name, 0) + 1 for name in missing if name in REQUIRED}
    kept = [finding for rule, finding in matches if rule.level != "ok" or not covered[rule.about]]
    kept += _uncovered(question, covered, untried)
    if not kept:
        words = "the table has no row for what is known here"
        return (Finding(Level.UNKNOWN, f"engine {engine}", words),)
    order = (Level.FAIL, Level.WARN, Level.UNKNOWN, Level.OK)
    return tuple(sorted(kept, key=lambda finding: order.index(finding.level)))


def _facts(when: When, question: Question, rows: Table) -> dict[str, bool | None]:
    """Each condition of a rule: true, false, or unknown (None)."""
    facts: dict[str, bool | None] = {}
    for name in (*JUDGED, "split"):
        wanted: list[str] = getattr(when, name)
        given: str = getattr(question, name)
        if wanted and name == "architecture":
            names = rows.names(given, question.classes)
            facts[name] = bool(names & set(wanted)) if given else None
        elif wanted:
            facts[name] = given.lower() in [choice.lower() for choice in wanted] if given else None
    if when.dtype:
        facts["dtype"] = question.dtype in when.dtype
    if when.sm or when.except_sm or when.below or when.from_sm:
        facts["compute capability"] = _is_of(question.machine, when)
    if when.lacks:
        facts["processor flags"] = _lacks(question.machine, when.lacks)
    if when.converts is not None:
        facts["conversion"] = question.converts == when.converts
    if when.unequal_cards is not None:
        unequal = _unequal(question.machine)
        facts["cards' memory"] = None if unequal is None else unequal == when.unequal_cards
    return facts


def _is_of(machine: Machine | None, when: When) -> bool | None:
    """Whether the cards meet all that a rule says of their compute capability."""
    answers: list[bool | None] = []
    if when.sm:
        answers.append(_has_sm(machine, when.sm))
    if when.except_sm:
        has = _has_sm(machine, when.except_sm)
        answers.append(None if has is None else not has)
    if when.below:
        answers.append(_is_below(machine, when.below))
    if when.from_sm:
        below = _is_below(machine, when.from_sm)
        answers.append(None if below is None else not below)
    return False if False in answers else None if None in answers else True


def _has_sm(machine: Machine | None, wanted: Sequence[str]) -> bool | None:
    known = [card.compute for card in machine.cards if card.compute] if machine else []
    if any(f"{major}.{minor}" in wanted for major, minor in known):
        return True
    return None if machine is None or len(known) < len(machine.cards) else False


def _is_below(machine: Machine | None, capability: str) -> bool | None:
    """Whether some card is older than a compute capability like "8.9"."""
    major, minor = map(int, capability.split("."))
    known = [card.compute for card in machine.cards if card.compute] if machine else []
    if any(compute < (major, minor) for compute in known):
        return True
    return None if machine is None or len(known) < len(machine.cards) else False


def _lacks(machine: Machine | None, flags: Iterable[str]) -> bool | None:
    if machine is None or not machine.cpu_flags:
        return None
    return bool(set(flags) - machine.cpu_flags)


def _unequal(machine: Machine | None) -> bool | None:
    if machine is None:
        return None
    sizes = [card.total for card in machine.cards if card.total]
    if len(sizes) < len(machine.cards):
        return None
    return len(sizes) > 1 and min(sizes) < (1 - EQUAL) * max(sizes)


def _title(question: Question, about: str) -> str:
    value = getattr(question, about, "")
    if about in ("attention", "experts"):
        value = IN_WORDS.get(value, value)
    return f"{question.engine}, {about}" + (f" {value}" if value else "")


def _finding(question: Question, rule: Rule, missing: Sequence[str]) -> Finding:
    """A rule's finding; `unknown` if it would object but facts of this machine are missing."""
    level, words = Level(rule.level), rule.words
    since, holds = release_in(rule.since or ""), ""
    if since and not missing and question.release is None:
        name = NAMES.get(question.engine.lower(), question.engine)
        holds = f"holds from {name} {rule.since} on ({_title(question, rule.about)})"
    elif since and not missing and is_older(question.release or (), since):
        level, words = Level.FAIL, f"{words}; not before {rule.since}"
    if missing:
        level, words = Level.UNKNOWN, f"{' and '.join(missing)} not known here, and then: {words}"
    return Finding(
        level, _title(question, rule.about), words, rule.hint, tuple(rule.lessons),
        f"{rule.source}, {rule.date}", holds=holds,
    )  # fmt: skip


def _uncovered(
    question: Question, covered: Iterable[str], untried: dict[str, int]
) -> Iterable[Finding]:
    """Given facts that no rule covers, and missing facts that a refusal depends on."""
    for name in JUDGED:
        value = getattr(question, name)
        title = _title(question, name)
        if value and name not in covered:
            yield Finding(Level.UNKNOWN, title, "the table says nothing about it")
        elif not value and untried.get(name):
            words = f"not known, and {untried[name]} of the refusals in the table depend on it"
            yield Finding(Level.UNKNOWN, title, words)


LOADERS = ("mmap", "resident", "convert")


@dataclass(frozen=True, slots=True)
class Loader:
    """How a checkpoint is to be loaded.

    `kind` is one of LOADERS or "" (chosen by format); `engine` a name of ENGINES or ""; `args` and
    `env` are the engine's own. `ctx` in tokens overrides theirs. `of` says whose arguments these
    are; `own`: the baseline's; `served`: the baseline was seen to serve. `takes`: what is known of
    the build's options, `build`: what is known of it besides; `inside`: it runs in an image, which
    has files of its own; `inferred`: the engine is that of the baseline's command line; `image`:
    what the image is called; `unread`: files of its variables that cannot be read here.
    """

    kind: str = ""
    engine: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ctx: int | None = None
    of: str = ""
    own: bool = False
    served: bool = False
    takes: Takes = field(default_factory=dict)
    build: Build | None = None
    inside: bool = False
    inferred: bool = False
    image: str = ""
    unread: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, known in (
            ("loader", self.kind, LOADERS), ("engine", self.engine, tuple(ENGINES)),
        ):  # fmt: skip
            if value and value not in known:
                raise UsageError(f"unknown {name} {one_line(value, 40)}", hint=", ".join(known))
        if self.ctx is not None and self.ctx < 1:
            raise UsageError(f"context {self.ctx}", "expected a number of tokens, like 8192")
        if self.kind == "mmap" and self.engine and ENGINES[self.engine].format is not Format.GGUF:
            raise UsageError(f"{self.engine} does not map files", hint="--loader resident")


def _llama(loader: Loader) -> LlamaPlan:
    """llama.cpp's plan; ik_llama.cpp's where no engine is named and only that has the options,
    which is then named, unless the command line is known to serve."""
    plan = llama_plan(loader.args, loader.env, takes=loader.takes)
    if plan.problems and not loader.engine:
        other = ik_plan(loader.args, loader.env, takes=loader.takes)
        if len(other.problems) < len(plan.problems):
            plan = other if loader.served else _by_ik(other, plan)
    return _mapped(loader, replace(plan, build=_known_build(loader)))


def _known_build(loader: Loader) -> Build:
    """What the build tells of itself, and where it tells nothing, its image's name."""
    if loader.build is not None and loader.build != Build():
        return loader.build
    return build_of_image(loader.image)


def _by_ik(plan: LlamaPlan, by_llama: LlamaPlan) -> LlamaPlan:
    """ik_llama.cpp's reading of a command line that may as well be for llama.cpp."""
    complaint = "; ".join(problem for problem in by_llama.problems if problem not in plan.problems)
    words = (
        f"{complaint}, and ik_llama.cpp's llama-server has it (--engine ik_llama.cpp if it is that)"
    )
    return replace(plan, problems=(*plan.problems, words))


def contested_by(loader: Loader) -> dict[str, tuple[str, ...]]:
    """The options of a llama.cpp's command line that some builds refuse; see `contested`."""
    engines = {"llama.cpp": ("llama_cpp",), "ik_llama.cpp": ("ik_llama",)}
    options: dict[str, tuple[str, ...]] = {}
    for engine in engines.get(loader.engine, ("llama_cpp", "ik_llama")):
        options |= contested(engine, loader.args, loader.env)
    return options


def _ik(loader: Loader) -> LlamaPlan:
    plan = ik_plan(loader.args, loader.env, takes=loader.takes)
    build = loader.build or Build()
    commits = ALL_COMMITS if build.serves else build.number
    return _mapped(loader, replace(plan, commits=commits))


ALL_COMMITS = 1 << 20
"""More than any build of ik_llama.cpp has: of one that serves with the command line at hand."""


def _mapped(loader: Loader, plan: LlamaPlan) -> LlamaPlan:
    return replace(plan, mmap=False) if loader.kind == "resident" else plan


def _sglang(loader: Loader) -> SglangPlan:
    return sglang_plan(loader.args, loader.image, loader.env)


def _vllm(loader: Loader) -> VllmPlan:
    return vllm_plan(loader.args, loader.env, loader.image)


def _kt(loader: Loader) -> SglangPlan:
    plan = sglang_plan(loader.args, env=loader.env)
    return replace(plan, kt_idle=not plan.kt)


class Engine(NamedTuple):
    """`format`: what `plan` sizes memory for; `options`: the table of its options; `like`: the
    engine whose arithmetic is borrowed, which is shown."""

    format: Format | None
    plan: Callable[[Loader], LlamaPlan | SglangPlan | VllmPlan]
    options: str
    like: str = ""


ENGINES = {
    "llama.cpp": Engine(Format.GGUF, _llama, "llama_cpp"),
    "ik_llama.cpp": Engine(Format.GGUF, _ik, "ik_llama", like="llama.cpp"),
    "sglang": Engine(Format.SAFETENSORS, _sglang, "sglang"),
    "kt-kernel": Engine(Format.SAFETENSORS, _kt, "sglang"),
    "vllm": Engine(Format.SAFETENSORS, _vllm, "vllm"),
    "exllamav3": Engine(None, _sglang, "sglang", like="SGLang"),
}
"""Engines that can be named."""


def fitting(loader: Loader, format_: Format) -> Loader:
    """The loader for this format: a baseline's arguments do not apply to another engine."""
    bare_loader = replace(loader, engine="") if loader.inferred else loader
    if not loader.own or speaks_gguf(bare_loader, format_) == _starts_llama(loader):
        return loader
    return replace(bare_loader, args=(), env={}, of="", own=False, served=False)


def _starts_llama(loader: Loader) -> bool:
    """Whether a command line is for llama.cpp: by its program, else by whose options it has."""
    started = engines.engine_of(loader.args)
    if started not in (None, engines.OTHER):
        return started is engines.LLAMA
    strange = {
        name: sum(argument.option is None for argument in given(loader.args, options_of(name)))
        for name in ("llama_cpp", "ik_llama", "sglang", "vllm")
    }
    return min(strange, key=lambda name: strange[name]) in ("llama_cpp", "ik_llama")


def plan_of(loader: Loader, format_: Format) -> LoaderPlan:
    if loader.kind == "convert":
        return conversion_plan(loader.args)
    engine = loader.engine or ("llama.cpp" if speaks_gguf(loader, format_) else "sglang")
    plan = ENGINES[engine].plan(loader)
    if loader.unread:
        files = ", ".join(one_line(path, 80) for path in loader.unread)
        words = f"the variables in {files}, which this user cannot read"
        plan = replace(plan, problems=(*plan.problems, words))
    return plan if loader.ctx is None else replace(plan, ctx=loader.ctx)


def speaks_gguf(loader: Loader, format_: Format) -> bool:
    """Whether llama.cpp or a fork of it is to load this."""
    if loader.engine:
        return ENGINES[loader.engine].format is Format.GGUF
    return format_ is Format.GGUF or loader.kind == "mmap"


def engine_of(loader: Loader, plan: LoaderPlan, format_: Format) -> str:
    """The engine's name for the compatibility table."""
    if loader.engine == "kt-kernel" and isinstance(plan, SglangPlan) and not plan.kt:
        return "sglang"  # which is what serves then
    if loader.engine:
        return loader.engine
    if isinstance(plan, LlamaPlan):
        return "llama.cpp"
    if loader.kind == "convert" or (isinstance(plan, SglangPlan) and plan.kt):
        return "kt-kernel"
    return "sglang" if format_ is not Format.GGUF else "llama.cpp"


def method_of(plan: LoaderPlan) -> str:
    """kt-kernel's method if the plan names one; for a conversion, its target method."""
    return str(getattr(plan, "kt_method", "") or getattr(plan, "method", ""))


def kernels_of(loader: Loader, engine: str, facts: ModelFacts, plan: LoaderPlan) -> tuple[str, str]:
    """The kinds of attention and of experts that an engine needs kernels for."""
    if engine not in ("vllm", "sglang", "kt-kernel") or not isinstance(plan, VllmPlan | SglangPlan):
        return "", ""
    latent = facts.attention.latent and isinstance(plan, VllmPlan)
    off = latent and loader.env.get(MLA_OFF, "0") not in ("", "0")
    online = is_online(facts, plan.quantization)
    experts = (TENSOR if online else facts.scaled_by) if facts.experts.count else ""
    return SWITCHED_OFF if off else facts.attends, experts


def computes(facts: ModelFacts, plan: LoaderPlan, quantization: str) -> str:
    """What kernels are wanted for: how weights are stored, or what an engine makes of them. What
    config.json says of that comes before the words of a label, which may be a name's."""
    asked_for = str(getattr(plan, "quantization", ""))
    return asked_for if is_online(facts, asked_for) else facts.stored or kind(quantization)
