"""Slurm itself: what an allocation is asked for with, how it is asked for, and what Slurm says of
its job. Slurm's own programs are called; their words are passed on, cleaned."""

from __future__ import annotations

import difflib
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from console.common.errors import ConsoleError, Exit, UsageError
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.host import children
from console.host.cgroup import paths_of
from console.host.systemd import PASSED

CALL_S = 15.0
"""How long one of Slurm's programs may take; a controller that is busy answers late."""
WORD = re.compile(r"[A-Za-z0-9_][\w.:,@/+=\[\]-]*")
"""A value as Slurm's options take it; no dash in front, no blank."""
FORM = "%i|%T|%r|%S|%L|%N"
TIME = re.compile(r"(?:(N)-)?(N)(?::(N))?(?::(N))?".replace("N", "[0-9]{1,9}"))
"""A time limit in Slurm's forms: `90` (minutes), `90:00`, `8:00:00`, `1-12`, `1-12:30`."""
MARGIN_S = 60.0
"""What a job is told of its end earlier than two restores of the baseline take."""
MIN_TIME_S = 2 * MARGIN_S
"""A shorter time is refused even where the baseline would be back at once."""
MIN_LEAD_S = 60
"""Slurm tells a job of the end of its time up to a minute early, and never later than asked."""
UNKNOWN = "UNKNOWN"
"""The state of a job that Slurm knows no more."""
OVER = frozenset({"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED",
                  "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
                  UNKNOWN})  # fmt: skip
"""States of a job that is over. Slurm has more of the others, and a job in one of them may come: it
is held when its reservation ends, for example."""
OPTIONS = {"node": "nodelist"}
"""Keys that `sbatch` calls otherwise."""
VALUE_HINTS = {
    "partition": "`sinfo` lists the partitions", "node": "`sinfo --Node` lists the nodes",
    "gres": "`scontrol show node` says which gres it has",
    "begin": "times as Slurm writes them: 23:00, now+2hours, 2026-11-27T02:00",
    "account": "`sacctmgr show associations user=$USER` lists the accounts",
    "qos": "`sacctmgr show qos` lists them",
    "reservation": "`scontrol show reservation` lists them",
}  # fmt: skip
"""Where the values of a key are found."""
HINTS = (
    ("invalid partition", VALUE_HINTS["partition"]),
    ("invalid account", VALUE_HINTS["account"]),
    ("node configuration is not available", "`scontrol show node` says which gres and CPUs it has"),
    ("invalid generic resource", VALUE_HINTS["gres"]),
    ("time specification", VALUE_HINTS["begin"]),
    ("unable to contact", "`scontrol ping` says whether slurmctld is up"),
    ("invalid node name", VALUE_HINTS["node"]),
)
NEVER = ("time specification", "invalid partition", "invalid account", "invalid generic resource",
         "reservation is invalid", "invalid node name", "invalid qos")  # fmt: skip
"""Words of refusals that no waiting mends. A node that is drained is called a configuration that is
not available, and a job would wait for it."""


UNWANTED = re.compile(r"SQUEUE_.*|SCANCEL_.*|SBATCH_(?:ARRAY_INX|WAIT)")
"""Variables with which a user has Slurm's programs hide jobs, ask first, wait, or make several jobs
of one; an account or a partition of the user's counts as ever."""


class SlurmError(ConsoleError):
    """Slurm refused, or does not answer."""

    exit_code = Exit.FAILED


class NeverGiven(SlurmError):
    """What was asked for is nothing that Slurm ever gives here: bad usage."""

    exit_code = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Wish:
    """What an allocation is asked for with, in Slurm's own words; "" leaves it to Slurm. `node`:
    this machine's name in Slurm, where that is not its host name; `exclusive`: nobody else's job on
    the node meanwhile."""

    partition: str = ""
    gres: str = ""
    begin: str = ""
    time: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    node: str = ""
    exclusive: bool = True

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Wish:
        """From words, which are checked as far as that is possible without a Slurm. Raises
        UsageError."""
        for key, value in given.items():
            require_sound(key, value)
        words = {key: value for key, value in given.items() if key != "exclusive"}
        return cls(**words, exclusive=given.get("exclusive", "true") == "true")

    def words(self) -> str:
        """For a plan: `partition gpu, gres gpu:1, begin 23:00, exclusive`."""
        parts = [f"{key} {value}" for key, value in asdict(self).items()
                if value and key != "exclusive"]  # fmt: skip
        return ", ".join([*parts, "exclusive" if self.exclusive else "shared"])

    def options(self) -> list[str]:
        named = ("partition", "gres", "begin", "time", "account", "qos", "reservation")
        flags = [f"--{name}={value}" for name in named if (value := getattr(self, name))]
        return [*flags, *(["--exclusive"] if self.exclusive else [])]


@dataclass(frozen=True, slots=True)
class Job:
    """What Slurm says of a job. `reason`: why it waits, "" for none; `start`: when it is expected
    to start, or started; `left`: what is left of its time."""

    id: str
    state: str = ""
    reason: str = ""
    start: str = ""
    left: str = ""
    node: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def words(self) -> str:
        """`PENDING (BeginTime), from 2026-11-26T23:00:00`."""
        why = f" ({self.reason})" if self.reason not in ("", "None") and not self.over else ""
        known = self.start not in ("", "N/A", "Unknown")
        at = f", from {self.start}" if known and self.state == "PENDING" else ""
        left = f", {self.left} left" if self.state == "RUNNING" and ":" in self.left else ""
        return f"{self.state}{why}{at}{left}"


def ended_words(job: Job) -> str:
    """Of a job that is over, and whose run never began."""
    return f"Slurm job {job.id} ended before it held anything: {job.words}"


def require_sound(key: str, value: str) -> None:
    """Check one key of a wish without asking any Slurm: what is refused here would be refused on
    every host. Raises UsageError with what is expected, and what to do instead."""
    known = [field.name for field in fields(Wish)]
    title = f"slurm {one_line(key, 40)}={one_line(value, 60)}"
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean '{near[0]}'?" if near else "a word without = is the partition"
        raise UsageError(
            f"slurm has no '{one_line(key, 40)}'", f"there are: {', '.join(known)}", hint
        )
    if key == "exclusive" and value not in ("true", "false"):
        hint = "false, if others may have jobs on this machine meanwhile"
        raise UsageError(title, "expected true or false", hint)
    if key == "time" and not seconds_of(value) > MIN_TIME_S:
        hint = f"more than {format_duration(MIN_TIME_S)}: before its end the baseline comes back"
        if not seconds_of(value):  # to sbatch it is no limit
            hint = "0 sets no limit; leave `time` away, and the partition's limit counts"
        raise UsageError(f"{title} is too short", "expected a longer time", hint)
    if not WORD.fullmatch(value):
        expected = f"expected a word as `sbatch --{OPTIONS.get(key, key)}` takes it"
        raise UsageError(
            title, f"{expected}, without blanks and no - in front",
            f"leave `{key}` away, and Slurm decides" if not value.strip()
            else VALUE_HINTS.get(key, ""),
        )  # fmt: skip


def seconds_of(given: str) -> float:
    """A time limit as TIME takes it. Raises UsageError."""
    match = TIME.fullmatch(given)
    if match is None:
        raise UsageError(
            f"slurm time={one_line(given, 40)}", "expected a time limit as Slurm writes it: 90 "
            "(minutes), 8:00:00, 1-12:30", "leave `time` away, and the partition's limit counts",
        )  # fmt: skip
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return int(days or 0) * 86400.0 + hours * 3600 + minutes * 60 + seconds


def inside() -> str:
    """The job in whose control group this process is, or whose shell it has; "" for none. All that
    is started there ends with that job."""
    matches = (re.search(r"slurm.*/job_(\d+)", path) for _, path in paths_of("self"))
    return next((match[1] for match in matches if match), os.environ.get("SLURM_JOB_ID", ""))


def refuse_inside() -> None:
    """Raise SlurmError in a job's own shell, or in a login that Slurm took into a job."""
    if job := one_line(inside(), 20):
        raise SlurmError(
            f"this shell is inside Slurm's job {job}",
            "what is started here ends with that job, the way back too",
            "a login outside of it: not from srun or salloc, and where pam_slurm_adopt takes "
            "logins into jobs, by a user whom it leaves alone",
        )


def unfit(wish: Wish) -> SlurmError | None:
    """Why no allocation can be asked for here; None where one can."""
    try:
        refuse_inside()
        _require_possible(wish, node_here(wish))
    except SlurmError as error:
        return error
    return None


def _require_possible(wish: Wish, node: str) -> None:
    """Have Slurm look at the wish, without a job. Raises NeverGiven."""
    try:
        _call(["sbatch", "--test-only", *_allocation_options(wish, node)], "#!/bin/sh\n")
    except NeverGiven:
        raise
    except SlurmError:
        pass  # what is refused now may be given later


def _allocation_options(wish: Wish, node: str) -> list[str]:
    """What an allocation on this machine is asked for with."""
    return [*wish.options(), f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--no-requeue"]


def node_here(wish: Wish) -> str:
    """This machine's name in Slurm. Raises SlurmError for a machine that is no node, and
    NeverGiven for a node that is known to be another machine."""
    here = socket.gethostname().split(".")[0]
    try:
        output = _call(["scontrol", "--oneliner", "show", "nodes"])
    except SlurmError:
        if not wish.node:
            raise
        output = ""
    hosts = {}
    for row in output.splitlines():
        properties = dict(word.partition("=")[::2] for word in row.split())
        name = properties.get("NodeName", "")
        hosts[name] = {name, properties.get("NodeHostName", "").split(".")[0]}
    ours = [name for name, called in hosts.items() if here in called]
    if wish.node in hosts and ours and wish.node not in ours:
        raise NeverGiven(
            f"node {wish.node} is another machine", f"this one is {', '.join(ours)} in Slurm",
            "leave `node` out, or ask on that machine",
        )  # fmt: skip
    if node := wish.node or next(iter(ours), ""):
        return node
    raise SlurmError(
        f"{here} is no node of this Slurm", f"its nodes: {', '.join(list(hosts)[:20])}",
        "slurmd has to run on this machine; node: NAME says what it is called there",
    )  # fmt: skip


def submit(
    wish: Wish, name: str, argv: Sequence[str], place: Path, lead_s: float, node: str
) -> str:
    """Ask for an allocation on this machine, held by the process `argv`; return the job's id. It
    gets SIGTERM `lead_s` before its time is over. Raises SlurmError."""
    options = [
        "sbatch", "--parsable", *_allocation_options(wish, node),
        f"--signal=B:TERM@{max(MIN_LEAD_S, round(lead_s))}",
        f"--job-name=omni:{name}", f"--chdir={place}", f"--output={place / 'job.log'}",
        "--open-mode=append", f"--export={','.join(_passed())}",
    ]  # fmt: skip
    script = f"#!/bin/sh\nexec {' '.join(map(_quoted, argv))}\n"
    output = _call(options, script).strip()
    last = output.rpartition("\n")[2]  # what a wrapper of the lab's says comes first
    job_id = last.partition(";")[0].strip()
    if not job_id.isdigit():
        raise SlurmError("sbatch printed no job number", one_line(output))
    return job_id


def _passed() -> list[str]:
    """Names of variables that the holder needs; others may be secrets, and Slurm keeps them."""
    names = (*PASSED, "HOME", "LANG", "PYTHONPATH", "SLURM_CONF", "XDG_CACHE_HOME")
    return [name for name in names if os.environ.get(name)]


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)


def look(ids: Iterable[str], within_s: float = CALL_S) -> dict[str, Job]:
    """What Slurm says of these jobs; one that it knows no more is UNKNOWN. Raises SlurmError when
    it does not answer: then nothing is known."""
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    argv = ["squeue", "--noheader", "--states=all", f"--format={FORM}",
            f"--jobs={','.join(wanted)}"]  # fmt: skip
    try:
        output = _call(argv, within_s=within_s)
    except SlurmError as error:
        if "invalid job id" not in error.detail.lower():
            raise
        output = ""
    jobs = {job_id: Job(job_id, UNKNOWN) for job_id in wanted}
    for row in output.splitlines():
        cells = [clean(cell, 60) for cell in row.split("|")]
        if len(cells) > 6:  # a reason is anybody's words
            cells[2:-3] = ["|".join(cells[2:-3])]
        if cells[0] in jobs:  # also where the row is cut off: it is known, and may come
            jobs[cells[0]] = Job(*cells)
    return jobs


def limit_of(job: str) -> float | None:
    """Seconds that are left of a job's time, all of it before it begins; None for no limit, and
    where Slurm does not say."""
    try:
        job_status = look([job])[job]
        return None if job_status.over else seconds_of(job_status.left)
    except ConsoleError:
        return None


def cancel(job: str) -> None:
    """Give a job up. Raises SlurmError."""
    _call(["scancel", job])


def kill_wait_s() -> float | None:
    """How long Slurm waits between a job's SIGTERM and its SIGKILL; None where it does not say."""
    try:
        match = re.search(r"^KillWait\s*=\s*(\d+)", _call(["scontrol", "show", "config"]), re.M)
    except SlurmError:
        return None
    return float(match[1]) if match else None


def _call(argv: Sequence[str], given: str | None = None, within_s: float = CALL_S) -> str:
    """What one of Slurm's programs prints. Raises SlurmError with its own words and a hint."""
    data = given.encode() if given is not None else None
    env = {name: value for name, value in os.environ.items() if not UNWANTED.fullmatch(name)}
    try:
        code, out, stderr = children.run(argv, within_s, env=env, given=data)
    except FileNotFoundError as error:
        raise SlurmError(
            f"there is no {argv[0]} on this machine", "", "install slurm-client (Debian)"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmError(f"{argv[0]} gave no answer", one_line(str(error))) from error
    if code == 0:
        return out.decode("utf-8", "replace")
    lines = [clean(line, 300).strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    words = "; ".join(filter(None, lines))[:600] or f"exit code {code}"
    hint = next((hint for form, hint in HINTS if form in words.lower()), "")
    never = any(form in words.lower() for form in NEVER)
    raise (NeverGiven if never else SlurmError)(f"Slurm refused: {argv[0]}", words, hint)
