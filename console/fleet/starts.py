"""On a host: the plans that were shown to an operator far away, and the runs that their requests
started. Both are kept on disk before anything begins, so that a request that is repeated after a
lost line finds its run and never starts a second one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths, record
from console.common.errors import ConsoleError, Exit, InvalidFile, UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import clean, one_line
from console.common.units import number
from console.config.site.schedule import MIN_LEASE_S
from console.fleet.protocol import MAX_KEPT, BridgeError
from console.journal.run_dir import RunDir, all_runs
from console.runner.launch import REQUEST, begin
from console.runner.slurm import ticket as tickets
from console.runner.slurm.job import Wish, unfit
from console.runner.slurm.standing import Standing, standing

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site
    from console.runner.prepare.plan import Plan

PRIVATE = 0o600
USUAL_LEASE_S = 1800.0
"""The lease of a run from afar that takes the baseline down, where nobody gives another one."""
KEPT = 200
"""Most plans, playbooks and requests that are kept, each. A run has its own copy of its playbook,
and a plan that was shown the whole text."""
STARTING = "starting"
"""The code of a start that is refused while another one is under way."""
GONE = "gone"
"""The code for a request whose run was deleted there."""
NOT_BEGUN = "not_begun"
"""The code for a request whose allocation came to nothing."""
LETTERS = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator far away wants to run. `shipped`: the playbook came with the console, so
    that its paths are relative to where the shipped ones lie; else they are to the site file's
    directory. `slurm`: what the run's allocation is asked for with; empty for a run that needs
    none."""

    name: str
    text: str
    inputs: dict[str, str] = field(default_factory=dict)
    lease_s: float | None = None
    yes: bool = False
    shipped: bool = False
    slurm: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, question: Mapping[str, Any]) -> Wanted:
        """Raises BridgeError for a question that does not hold together."""
        inputs, lease_s = question.get("inputs", {}), question.get("lease_s")
        slurm = question.get("slurm", {})
        sound = (
            isinstance(question.get("text"), str)
            and all(
                isinstance(table, dict) and all(isinstance(value, str) for value in table.values())
                for table in (inputs, slurm)
            )
            and (lease_s is None or number(lease_s) is not None)
        )  # fmt: skip
        if not sound:
            raise BridgeError("bad_question", "no playbook, or inputs that are no text")
        if lease_s is not None and lease_s < MIN_LEASE_S:
            raise BridgeError("bad_question", f"a lease is at least {MIN_LEASE_S:.0f} s")
        return cls(
            paths.file_name(one_line(str(question.get("name") or "playbook"), 60)),
            question["text"],
            dict(inputs),
            None if lease_s is None else float(lease_s),  # as the kept plan has it: it is hashed
            question.get("yes") is True,
            question.get("shipped") is True,
            dict(slurm),
        )


@dataclass(frozen=True)
class Shown:
    """A plan as it is shown. `hash`: of all that decides what will run; `digest`: of playbook and
    site alone, which the start is held against."""

    wanted: Wanted
    playbook: Playbook
    site: Site
    made: Plan
    lease_s: float
    hash: str
    digest: str


def shown(wanted: Wanted, site: Site) -> Shown:
    """Plan what is wanted, with this host's site. Raises UsageError."""
    from console.config.locate import shipped
    from console.config.playbook.load import load_playbook
    from console.journal.history import usual
    from console.runner.guard.limits import lease_of
    from console.runner.prepare.baseline import restore_time
    from console.runner.prepare.catalog import digest
    from console.runner.prepare.plan import make_plan

    Wish.read(wanted.slurm)
    path = _kept_text(wanted)
    try:
        playbook = load_playbook(
            path, wanted.inputs, site_services=frozenset(site.model.services),
            aliases=site.model.names, offers=site.offers,
            base=shipped() if wanted.shipped else site.base,
        )  # fmt: skip
    except (InvalidFile, UsageError) as error:
        sent = (_as_sent(text, path) for text in (error.title, error.detail, error.hint))
        raise UsageError(*sent) from error
    past = usual(playbook.name, site.name)
    made = make_plan(playbook, site, restore_time(site.name), history=past)
    lease_s = lease_of(made, wanted.lease_s)
    if made.takes_down and not lease_s:
        lease_s = USUAL_LEASE_S
    whole = digest(playbook, site)
    terms = [whole, wanted.inputs, lease_s, wanted.yes, wanted.shipped, wanted.slurm]
    words = json.dumps(terms, sort_keys=True)
    return Shown(
        wanted, playbook, site, made, lease_s, hashlib.sha256(words.encode()).hexdigest(), whole
    )


def _as_sent(words: str, path: Path) -> str:
    """The same without the place of the copy, which says nothing to who has sent the playbook."""
    return words.replace(str(path), path.name)


def plan_answer(plan: Shown) -> dict[str, Any]:
    """A plan as an answer: its lines, what a start would be refused for, with the exit code of a
    `run` here, and its hash."""
    from console.checks.lint.rule import facts_of
    from console.runner.prepare import admission, plan_text, startable

    findings = admission.plan_findings(plan.playbook, facts_of(plan.site))
    looked, hide = startable.look(plan.playbook, plan.site), plan.made.known.text
    stops = [(Exit.USAGE, str(problem)) for problem in looked.problems]
    stops += [(Exit.LINT, f"lint: {x.text}") for x in findings if x.severity == "error"]
    stops += [(Exit.LINT, words.words) for words in admission.blockers(plan.made)]
    lines, slurm = (
        plan_text.lines(plan.made, findings, looked, lease_s=plan.lease_s),
        plan.wanted.slurm,
    )
    if slurm:
        lines.append(f"begins when Slurm gives it this machine: {Wish.read(slurm).words()}")
        if refused := unfit(Wish.read(slurm)):
            stops.append((refused.exit_code, str(refused)))
    return {
        "lines": [_as_sent(words, plan.playbook.path) for words in lines], "slurm": slurm,
        "problems": [clean(_as_sent(hide(words), plan.playbook.path), 1000) for _, words in stops],
        "exit": int(stops[0][0]) if stops else int(Exit.OK),
        "takes_down": plan.made.takes_down, "lease_s": plan.lease_s, "hash": plan.hash,
        "site": plan.site.name, "playbook": plan.playbook.name,
    }  # fmt: skip


# -- what is kept ----------------------------------------------------------------------------------


def _kept_text(wanted: Wanted) -> Path:
    """The playbook as a file: runs and messages name it. Written with each plan, so that those of
    the newest plans are the newest."""
    content = hashlib.sha256(wanted.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    path = paths.bridge_dir() / "playbooks" / content / f"{wanted.name}.yaml"
    paths.make(path.parent)
    write_atomically(path, wanted.text, PRIVATE)
    _prune(path.parents[1].glob("*"))
    return path


def keep(plan: Shown) -> None:
    """Keep a plan that is about to be shown: its hash is all that a start names."""
    path = paths.bridge_dir() / "plans" / f"{plan.hash}.json"
    paths.make(path.parent)
    write_atomically(path, json.dumps(record.plain(plan.wanted)), PRIVATE)
    _prune(path.parent.glob("*.json"))


def kept(confirmed: str, site: Site) -> Shown:
    """The plan with this hash, made anew. Raises BridgeError if it is another one by now."""
    path = paths.bridge_dir() / "plans" / f"{_plain(confirmed)}.json"
    try:
        wanted = record.read(Wanted, path, MAX_KEPT)
    except (OSError, RecordError) as error:
        raise BridgeError(
            "changed", "this host has shown no such plan", one_line(str(error)), "plan again"
        ) from error
    try:
        plan = shown(wanted, site)
    except (InvalidFile, UsageError) as error:
        raise BridgeError(
            "changed", "the plan holds no longer", str(error), "plan again"
        ) from error
    if plan.hash != confirmed:
        raise BridgeError(
            "changed", "the site of this host has changed since its plan was shown", "",
            "read the plan again",
        )  # fmt: skip
    return plan


def _prune(entries: Iterable[Path]) -> None:
    """Keep the newest; a request whose run is gone can be forgotten, too."""
    with suppress(OSError):
        for old in sorted(entries, key=lambda entry: entry.stat().st_mtime, reverse=True)[KEPT:]:
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink()


def _plain(word: str) -> str:
    """A hash or a request id as a file name. Raises BridgeError."""
    if not 8 <= len(word) <= 64 or not LETTERS.issuperset(word):
        raise BridgeError("bad_question", "expected 8 to 64 hexadecimal digits")
    return word


# -- requests --------------------------------------------------------------------------------------


def run_of(request: str) -> RunDir | None:
    """The run that a request has started; a directory whose runner never began is none. Raises
    BridgeError if there was one, and its directory is gone."""
    from console.journal.lock import runner_alive
    from console.journal.run_files import NEVER_BEGAN, read_view, word_of

    ticket = tickets.by_id(_plain(request))
    end = ticket.ended if ticket else None
    started = _run_by(request) or (end.run if end else "")
    for run in all_runs():
        if run.id == started:
            return run
        try:
            mine = (run.path / REQUEST).read_text("utf-8").strip() == request
        except (OSError, ValueError):
            continue
        if mine:
            with suppress(ConsoleError):
                if word_of(run, read_view(run), runner_alive(run)) != NEVER_BEGAN:
                    return run
    if started:
        raise BridgeError(GONE, f"run {clean(started, 100)} was started, but is no longer there")
    return None


def waits(request: str) -> Standing | None:
    """Where a request stands that waits for an allocation; None for one that does not. Raises
    BridgeError if its run will never begin."""
    ticket = tickets.by_id(_plain(request))
    if ticket is None or not ticket.job:
        return None
    now = standing(ticket)
    if now.why:
        words = f"Slurm job {now.job}: no run has begun"
        raise BridgeError(NOT_BEGUN, words, now.why, "", now.exit_code)
    return now


def start(
    request: str, confirmed: str, site: Site, say: Callable[[str], None], *, headless: bool
) -> tuple[RunDir | None, bool]:
    """The run of this request, and whether it was started now; no run where an allocation is waited
    for. Raises BridgeError, NotStarted and what else keeps a run from starting; then there is none,
    and the request may be repeated."""
    with _one_at_a_time():
        run = run_of(request)
        if run is None:
            plan = kept(confirmed, site)
            _write(request, confirmed, "")
            if plan.wanted.slurm:
                if waits(request) is None:
                    _enter(plan, request, say, headless=headless)
                return None, True
            run, begun = (
                begin(
                    plan.site,
                    plan.playbook,
                    plan.wanted.inputs,
                    step=False,
                    say=say,
                    yes=plan.wanted.yes,
                    headless=headless,
                    expect=plan.digest,
                    lease_s=plan.lease_s,
                    request=request,
                ),
                True,
            )
        else:
            begun = False
        with suppress(OSError):  # a full disk: its own directory names the request, too
            _write(request, confirmed, run.id)
        return run, begun


def _enter(plan: Shown, request: str, say: Callable[[str], None], *, headless: bool) -> None:
    """Ask Slurm for the allocation of a request. Raises SlurmError."""
    from console.runner.slurm.waiter import enter

    enter(
        plan.site, plan.playbook, plan.wanted.inputs, Wish.read(plan.wanted.slurm), say,
        ticket=request, request=request, yes=plan.wanted.yes, headless=headless,
        lease_s=plan.lease_s, expect=plan.digest,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Begun:
    """A request on disk: the hash of its plan, and the run it has started, "" for none yet."""

    hash: str = ""
    run: str = ""


def _run_by(request: str) -> str:
    """The run that a request is known to have started, "" for none."""
    with suppress(OSError, RecordError):
        return record.read(_Begun, _path_of(request)).run
    return ""


def _write(request: str, confirmed: str, run: str) -> None:
    path = _path_of(request)
    paths.make(path.parent)
    write_atomically(path, json.dumps(record.plain(_Begun(confirmed, run))), PRIVATE)
    _prune(path.parent.glob("*.json"))


def _path_of(request: str) -> Path:
    return paths.bridge_dir() / "requests" / f"{_plain(request)}.json"


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A request that is repeated while its start is under way is refused, and asks again. The
    kernel lets go of a dead one's lock. Raises BridgeError."""
    paths.make(paths.bridge_dir())
    path = paths.bridge_dir() / "lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            words = "a run is being started on this host"
            raise BridgeError(STARTING, words, "", "ask again", Exit.BUSY) from error
        yield
    finally:
        os.close(lock)
