"""Where a run stands that waits for its allocation or has one, in Slurm's own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from console.common.errors import ConsoleError, Exit
from console.common.text import clean
from console.runner.slurm import job as slurm
from console.runner.slurm import ticket as tickets
from console.runner.slurm.job import Job, SlurmError
from console.runner.slurm.ticket import End, Ticket

SHOWN = 20
GLANCE_S = 3.0
"""How long a list waits for Slurm: squeue asks a controller that is down for 18 seconds."""
CODES = {exit_code.value: exit_code for exit_code in Exit}


class NotBegun(ConsoleError):
    """A run that waited for an allocation has not begun, and never will."""

    def __init__(self, why: str, code: Exit) -> None:
        super().__init__("no run has begun", why)
        self.exit_code = code


@dataclass(frozen=True, slots=True)
class Standing:
    """`words`: of its job; `run`: its id, "" before it has begun; `why`: why it never will, ""
    while it may; `exit`: the code that belongs to that."""

    job: str
    playbook: str
    wish: str
    state: str = ""
    reason: str = ""
    words: str = ""
    run: str = ""
    why: str = ""
    exit: int = 0

    @property
    def exit_code(self) -> Exit:
        return CODES.get(self.exit, Exit.FAILED) or Exit.FAILED

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def standing(ticket: Ticket) -> Standing:
    """Where one stands. Slurm is asked only while the run has not begun; the words say so where it
    does not answer."""
    run = ticket.run
    ended = ticket.ended
    if run is not None and not (ended or ticket.awaited):
        ended = End(run.id)  # whoever began it died before it could note so
    ticket_standing = _of(ticket, None, ended)
    return (
        ticket_standing
        if ticket_standing.run or ticket_standing.why
        else next(iter(_ask_slurm([ticket])), ticket_standing)
    )


def everywhere() -> list[Standing]:
    """All that wait and all whose allocation is held now; none that will never begin. With a Slurm
    that does not answer the words say so."""
    alive = [x for x in tickets.everyone() if not x.ended or (x.held and x.held.lives)][:SHOWN]
    return [
        request for request in _ask_slurm([x for x in alive if x.job], GLANCE_S) if not request.why
    ]


def waiting() -> list[str]:
    """The runs here that have not begun, in words: each with its job and what gives that up."""
    every = [request for request in everywhere() if not request.run]
    return [
        waits(request.playbook, request.job, request.words, f"scancel {request.job}")
        for request in every
    ]


def waits(playbook: str, job: str, words: str, gives_up: str) -> str:
    """A run that has not begun, in words; `gives_up` is the command that does."""
    return f"{playbook} waits for Slurm: job {job}, {words}; `{gives_up}` gives it up"


def _ask_slurm(
    slurm_tickets: Iterable[Ticket], within_s: float = slurm.CALL_S
) -> Iterable[Standing]:
    known: dict[str, Job] = {}
    why = ""
    try:
        known = slurm.look((slurm_ticket.job for slurm_ticket in slurm_tickets), within_s)
    except SlurmError as error:
        why = clean(f"Slurm does not answer: {error}", 200)
    for ticket in slurm_tickets:
        job = known.get(ticket.job, Job(ticket.job, why or slurm.UNKNOWN))
        yield _of(
            ticket, job, ticket.ended or (_left_over(ticket, job) if ticket.job in known else None)
        )


def _left_over(ticket: Ticket, job: Job) -> End | None:
    """What became of a job that is over, where nobody is left to write that down; None for one that
    may still come, and for one whose waiter lives, which says it better."""
    if not job.over or ticket.awaited:
        return None
    ended, run = ticket.ended, ticket.run  # now: its waiter wrote before it went
    if ended or run is not None:
        return ended
    words = f"{slurm.ended_words(job)}; the process that would have begun the run is gone"
    return End(words=words, exit=int(Exit.FAILED))


def _of(ticket: Ticket, job: Job | None, ended: End | None) -> Standing:
    end = ended or End()
    run = clean(end.run, 100)
    why = "" if run else clean(end.words, 1500)
    return Standing(
        ticket.job, clean(ticket.name, 60), clean(ticket.wish, 200),
        job.state if job else "", job.reason if job else "", job.words if job else "",
        run, why, end.exit,
    )  # fmt: skip
