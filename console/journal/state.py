"""The states of a run and of a step, and which may follow which. Pure.

pending → running ⇄ paused | waiting_approval → stopping → rolling_back → one of the ends.
Nothing goes forward from rolling_back.
"""

from __future__ import annotations

from enum import StrEnum

from console.common.errors import ConsoleError, Exit

ASKING = frozenset({"approval", "manual"})
"""Kinds of step that wait for a person, whose time says nothing of the machine's."""
JUDGING = frozenset({"gate", "checkpoint", "gguf", "host", "imports"})
"""Kinds of step that end in a verdict. Viewers know both without the models of a playbook's steps,
whose records say the same (`StepKind`)."""


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING_APPROVAL = "waiting_approval"
    STOPPING = "stopping"
    ROLLING_BACK = "rolling_back"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"
    ROLLBACK_FAILED = "rollback_failed"


class StepState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    RETRY_WAIT = "retry_wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"


class Pause(StrEnum):
    """Why a run stands still; a pause always has a named reason."""

    STEP_FAILED = "step_failed"
    HOLD = "hold"
    FEW_SAMPLES = "few_samples"
    """A gate is HOLD because too few samples were valid, and they can be measured again."""
    FEW_BASELINE = "few_baseline"
    """The baseline has fewer valid samples than a gate needs, before anything is paid for."""
    OPERATOR = "operator"
    IN_DOUBT = "in_doubt"
    APPROVAL_EXPIRED = "approval_expired"


class Cause(StrEnum):
    """Why a step failed."""

    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    OOM_KILL = "oom_kill"
    GUARD = "guard"
    GATE = "gate"
    PRECONDITION = "precondition"
    START_ERROR = "start_error"
    OUTPUT_INVALID = "output_invalid"
    NOT_READY = "not_ready"
    EXPIRED = "expired"
    INTERNAL = "internal"


class Decision(StrEnum):
    """The result of all gates; independent of the run's state."""

    NONE = ""
    GO = "go"
    HOLD = "hold"
    NO_GO = "no_go"

    @property
    def word(self) -> str:
        """`NO-GO`, as people write it; empty if nothing was decided."""
        return self.value.upper().replace("_", "-")


class Mark(StrEnum):
    """What must accompany a decision wherever it stands: it is no plain one."""

    REHEARSAL = "REHEARSAL"
    OVERRIDDEN = "OVERRIDDEN"
    DOUBTFUL = "DOUBTFUL"


R = RunState
ENDS = frozenset({R.SUCCEEDED, R.FAILED, R.CANCELLED, R.ROLLED_BACK, R.ROLLBACK_FAILED})
STANDING = (R.PAUSED, R.WAITING_APPROVAL)
"""States in which a run waits for a person."""
_LIVE = (R.RUNNING, *STANDING)
LOST_AFTER_LAST = "the baseline did not serve any more after the last step"
"""The reason of a rollback after the steps of `finally`."""
TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    R.PENDING: frozenset({R.RUNNING, R.FAILED, R.CANCELLED, R.ROLLING_BACK}),
    **dict.fromkeys(_LIVE, frozenset({*_LIVE, R.STOPPING, R.ROLLING_BACK} | ENDS)),
    R.STOPPING: frozenset({R.ROLLING_BACK} | ENDS),
    R.ROLLING_BACK: frozenset({R.ROLLED_BACK, R.ROLLBACK_FAILED}),
    # an emergency rollback may come after the end: the baseline can die later as well
    **{end: frozenset({R.ROLLING_BACK}) for end in ENDS},
}

STEP_ENDS = frozenset({StepState.SUCCEEDED, StepState.SKIPPED, StepState.CANCELLED})

VERBS: dict[str, frozenset[RunState]] = {
    "next": frozenset({R.PAUSED}),
    "auto": frozenset({R.PAUSED, R.RUNNING}),
    "continue": frozenset({R.PAUSED, R.RUNNING}),
    "pause": frozenset({R.RUNNING, R.WAITING_APPROVAL}),
    "approve": frozenset({R.WAITING_APPROVAL, R.PAUSED}),
    "reject": frozenset({R.WAITING_APPROVAL}),
    "retry": frozenset({R.PAUSED}),
    "measure": frozenset({R.PAUSED}),
    "skip": frozenset({R.PAUSED}),
    "abort": frozenset({*_LIVE, R.PENDING}),
    "rollback": frozenset({*_LIVE, R.PENDING}),
}
"""Which verb is possible in which state; `check_verb` says why not."""


STILL = frozenset({"retry", "skip", "abort", "rollback"})
PAUSE_VERBS: dict[str, frozenset[str]] = {
    Pause.OPERATOR: frozenset({"next", "auto", "continue", "skip", "abort", "rollback"}),
    Pause.STEP_FAILED: STILL,
    Pause.IN_DOUBT: STILL,
    Pause.APPROVAL_EXPIRED: STILL,
    Pause.HOLD: frozenset({"approve", "retry", "abort", "rollback"}),
    Pause.FEW_BASELINE: frozenset(
        {"next", "auto", "continue", "retry", "measure", "abort", "rollback"}
    ),
    Pause.FEW_SAMPLES: frozenset({"approve", "retry", "measure", "abort", "rollback"}),
}
"""Verbs that end a pause, by the reason of the pause."""


UNDECIDED = (Pause.HOLD, Pause.FEW_SAMPLES)
"""Reasons of a pause in which a person decides about a gate."""


class ForbiddenTransition(ConsoleError):
    """A bug: the code asked for a transition that the table does not have."""


def check_transition(current: RunState, new: RunState) -> None:
    """Raise ForbiddenTransition unless `new` may follow `current`."""
    if new not in TRANSITIONS[current]:
        raise ForbiddenTransition("forbidden transition", f"{current} → {new}")


def refusal(verb: str, state: RunState, reason: str = "") -> str:
    """Why a verb is not possible in this state and pause, or "" if it is."""
    if verb not in VERBS:
        return f"unknown verb '{verb}'"
    possible = possible_verbs(state, reason)
    if verb in possible:
        return ""
    if state in ENDS:
        return f"the run has ended ({state})"
    where = f"{state} ({reason})" if reason else str(state)
    others = f"possible: {', '.join(possible)}" if possible else "no verb is"
    return f"'{verb}' is not possible while the run is {where}; {others}"


def possible_verbs(state: RunState, reason: str = "") -> list[str]:
    """The verbs that a run in this state, paused for this reason, takes."""
    now = PAUSE_VERBS.get(reason) if state is R.PAUSED else None
    return [v for v, states in VERBS.items() if state in states and (now is None or v in now)]


def stands(state: RunState, reason: str, step: str) -> str:
    """What a run that waits for a person waits for: `Gate go undecided: you decide`; "" for one
    that does not wait. `step`: the clean id of the step, or of the next one."""
    if state is R.WAITING_APPROVAL:
        return f"Waiting for you: {step}"
    words: dict[str, str] = {
        Pause.OPERATOR: f"Paused before {step}",
        Pause.HOLD: f"Gate {step} undecided: you decide",
        Pause.FEW_SAMPLES: f"Gate {step} undecided: too few samples",
        Pause.FEW_BASELINE: "Too few samples of the baseline: you decide",
        Pause.STEP_FAILED: f"Step {step} failed: you decide",
        Pause.IN_DOUBT: f"Step {step} in doubt: you decide",
        Pause.APPROVAL_EXPIRED: f"Approval {step} expired: you decide",
    }
    return words.get(reason, "") if state is R.PAUSED else ""


def exit_code(state: RunState, decision: Decision, *, left: bool = False) -> Exit:
    """The first of 7, 6, 5, 3, 4, 0 that applies. `left`: what should be gone still runs beside the
    baseline, which serves."""
    if state is R.ROLLED_BACK and left:
        return Exit.ROLLBACK_FAILED
    if state is R.SUCCEEDED:
        return {Decision.NO_GO: Exit.NO_GO, Decision.HOLD: Exit.HOLD}.get(decision, Exit.OK)
    return {
        R.ROLLBACK_FAILED: Exit.ROLLBACK_FAILED, R.ROLLED_BACK: Exit.ROLLED_BACK,
        R.FAILED: Exit.FAILED, R.CANCELLED: Exit.FAILED,
    }.get(state, Exit.HOLD)  # fmt: skip
