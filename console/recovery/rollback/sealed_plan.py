"""The sealed plan: all that a rollback needs, resolved before step 1 and stored with the run.

It names ids, pids, URLs and argv, so that nothing has to be looked up in a playbook, site file or
journal. It is plain JSON, so that a person can read it when nothing else works.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from console.common import paths, record, redact
from console.common.errors import ConsoleError, InvalidFile, Problem
from console.common.files import open_regular, write_atomically
from console.common.record import RecordError
from console.host.process import Owner, ProcessSpec
from console.host.units import UnitSpec
from console.runtime.spec import GRACE_S, PROMPT

PLAN, SCHEMA = "plan.json", "omni.rollback/v1"
SCRIPT = "rollback.sh"
WITHOUT_PYTHON = "without-python.sh"
"""The script that rolls back without Python; it is written after the plan."""
CUT_OVER = "cut-over"
"""In the same directory while clients are at the run's candidate: the name of its service."""
SITE = "site.yaml"
"""In the run's directory: the site file as it was when the run began."""
ROLLBACK, SITES = "rollback", "sites"
"""The directory, inside the run's, that holds plan, script, live.jsonl and ladder.jsonl; and the
one, inside the state directory's, that holds the last two of each site without a run."""
BREACH = ("guard", "breach.json")
"""In the run's directory: the file that the sentinel writes after a kill."""
SIZE_LIMIT = 1 << 20
Positive = Annotated[float, record.within(0.0, 1e12, "a number, not negative")]
AtLeastOne = Annotated[int, lambda count: max(1, count)]
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The completion that proves the baseline serves."""

    model: str = ""
    prompt: str = PROMPT
    max_tokens: AtLeastOne = 8
    timeout_s: Positive = 120.0
    expect: str = ""
    """A pattern that the answer has to match somewhere. Older plans have none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a rollback restores. `kind` is `container`, `process` or `unit`; rates in tokens/s.

    `compose_argv` is the fallback when the container is gone: the whole `docker compose … up -d
    --no-deps --no-build --pull never SERVICE`. `log` is a process's log file. `program` is the path
    of its program and `environment` has the allow-listed variables, both as they were at sealing:
    they may differ for whoever rolls back, such as root by sudo. Older plans have neither.
    """

    name: str
    kind: Annotated[str, record.one_of("container", "process", "unit")]
    url: str
    ready_path: str = "/health"
    ready_timeout_s: Positive = 900.0
    completion: Proof = Proof()
    container_id: str = ""
    container_name: str = ""
    image_id: str = ""
    compose_argv: tuple[str, ...] = ()
    compose_env: Pairs = ()
    process: ProcessSpec | None = None
    program: str = ""
    environment: Pairs = ()
    records_dir: str = ""
    log: str = ""
    reference_tok_s: Positive | None = None
    tolerance: Positive = 0.10
    unit: UnitSpec | None = None
    by_name: bool = False
    """Try the container that has the name now before the one with the sealed id."""

    @property
    def ways(self) -> tuple[str, ...]:
        """Id and name of the container, in the order in which they are tried."""
        both = (self.container_id, self.container_name)
        return tuple(
            dict.fromkeys(
                identifier for identifier in (both[::-1] if self.by_name else both) if identifier
            )
        )

    def is_below(self, tok_s: float) -> bool:
        """Whether a rate is below the reference by more than the tolerance."""
        known = self.reference_tok_s
        return known is not None and tok_s < known * (1 - self.tolerance)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that a run may start; `container` is its id or name, if known, and `url` where it
    answers."""

    service: str
    kind: str = "container"
    container: str = ""
    name: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """How to reach the container engine: socket path, and the environment of the docker command."""

    socket: str = ""
    docker_host: str = ""
    docker_config: str = ""


@dataclass(frozen=True, slots=True)
class SealedPlan:
    """All that a rollback needs; `sealed_at` is in Unix seconds.

    `grace_s` is how many seconds a candidate gets to end. `keep` names services that stay up in a
    rollback that the runner asked for; an emergency ends them. With `lease_s` 0 there is no lease.
    `finish_argv` is the closer; `finish_env` names variables that it needs, never their values.
    `copy` is the directory of the sealed copy of the rollback's code, "" where none could be made.
    """

    run_id: str
    run_dir: str
    baseline: Baseline
    site_name: str = ""
    site_path: str = ""
    sealed_at: Positive = 0.0
    candidates: tuple[Candidate, ...] = ()
    engine: EngineAddress = EngineAddress()
    protected: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    exclusive: bool = False
    memory_file: str = ""
    finish_argv: tuple[str, ...] = ()
    finish_env: tuple[str, ...] = ()
    grace_s: Positive = GRACE_S
    keep: tuple[str, ...] = ()
    lease_s: Positive = 0.0
    label_site: str = ""
    """What the site was called when the run began, if it has another name by now."""
    copy: str = ""

    @property
    def labelled_for(self) -> str:
        """The site that the labels of the run's containers name."""
        return self.label_site or self.site_name

    @property
    def rollback_dir(self) -> Path:
        """The directory of ladder.jsonl and the lock; without a run, one of the site's own: whoever
        waits there for a rollback takes its result for that of this baseline."""
        if self.run_dir:
            return Path(self.run_dir) / ROLLBACK
        return paths.state_dir() / ROLLBACK / SITES / paths.file_name(self.site_name or "none")

    @property
    def records_dir(self) -> Path:
        base = self.baseline.records_dir
        return Path(base) if base else paths.state_dir() / "services"

    @property
    def owner(self) -> Owner:
        """Which site it is, where two files may have its name."""
        return Owner(self.site_path, self.baseline.url)

    @property
    def secrets(self) -> redact.Known:
        """What is secret in the baseline's commands and variables, also as a shell quotes it."""
        base = self.baseline
        pairs = (*base.compose_env, *base.environment, *(base.process.env if base.process else ()))
        argv = base.process.argv if base.process else ()
        known = redact.Known.of(dict(pairs), list(argv), list(base.compose_argv))
        return known | redact.Known(tuple(map(shlex.quote, known.values)))

    @property
    def name_first(self) -> SealedPlan:
        """This plan, used long after its run: the container with the sealed id may be unused by
        now, so the container with the name is tried first."""
        return replace(self, baseline=replace(self.baseline, by_name=True))

    def is_older_than(self, site: Path) -> bool:
        """Whether a site file differs from the run's copy of it; without a copy, whether it is
        newer than the plan. A copy is more reliable, because `mv` and `cp -p` keep an old date."""
        try:
            if self.run_dir:
                with contextlib.suppress(ConsoleError):
                    copy, _ = _read_bytes(Path(self.run_dir, SITE))
                    return _read_bytes(site)[0].removeprefix(codecs.BOM_UTF8) != copy
            return site.stat().st_mtime > self.sealed_at
        except OSError:
            return False

    def has_baseline_of(self, other: SealedPlan) -> bool:
        """Whether both plans restore the same server, whatever their sites are called: it has the
        same address, or is the same container or unit."""
        mine, theirs = self.baseline, other.baseline
        shared_identifiers = {mine.container_id, mine.container_name} & {
            theirs.container_id,
            theirs.container_name,
        }
        same_unit = mine.unit is not None and mine.unit == theirs.unit
        return bool(shared_identifiers - {""}) or same_unit or is_same_address(mine.url, theirs.url)

    def has_address_of(self, other: SealedPlan) -> bool:
        """Whether clients reach the baselines of both plans at the same port of this machine."""
        return is_same_address(self.baseline.url, other.baseline.url)

    def with_baseline_of(self, site: SealedPlan) -> SealedPlan:
        """This run's plan with the baseline of `site`, the plan of its changed site file, which may
        have renamed the site. What the run may have left behind is still looked for."""
        has_engine = self.engine.socket or self.engine.docker_host
        use_site_engine = not has_engine or site.baseline.kind == "container"
        return replace(
            self,
            baseline=site.baseline,
            site_name=site.site_name,
            label_site=self.labelled_for,
            site_path=site.site_path,
            candidates=tuple(dict.fromkeys((*self.candidates, *site.candidates))),
            engine=site.engine if use_site_engine else self.engine,
            protected=tuple(dict.fromkeys((*self.protected, *site.protected))),
            gpus=tuple(dict.fromkeys((*self.gpus, *site.gpus))),
        )

    def to_json(self) -> dict[str, Any]:
        """The plan in plain JSON values."""
        return {"schema": SCHEMA, **record.plain(self)}

    @classmethod
    def from_json(cls, value: object, source: str = "plan.json") -> SealedPlan:
        """The plan in a decoded JSON value. Raises InvalidFile."""
        try:
            plan = record.of(cls, value, schema=SCHEMA)
            _require_start(plan.baseline)
        except RecordError as error:
            raise _invalid(source, error.key or "the plan", error.expected) from error
        return plan


def write(plan: SealedPlan, path: Path, mode: int = 0o600) -> None:
    """Write the plan atomically and durably. Raises OSError."""
    paths.make(path.parent)
    write_atomically(path, record.text(plan, indent=1, schema=SCHEMA), mode)


def read(path: Path) -> SealedPlan:
    """The plan in a file. Raises InvalidFile when it is missing, unreadable or no plan."""
    return read_owned(path)[0]


def of_run(run_dir: Path) -> SealedPlan:
    """A run's plan, or its copy if the run's directory has lost the plan. Raises InvalidFile."""
    try:
        return read(run_dir / ROLLBACK / PLAN)
    except InvalidFile:
        for path in copies():
            with contextlib.suppress(InvalidFile):
                plan = read(path)
                if plan.run_dir == str(run_dir):
                    return plan
        raise


def is_same_address(address: str, other: str) -> bool:
    """Whether two URLs lead to the same port of the same machine."""
    from console.host.ports import is_local, port_of  # whoever only reads a plan needs none of it

    if is_local(address) and is_local(other):
        return port_of(address) == port_of(other)
    return address.rstrip("/") == other.rstrip("/")


def site_script(site: str) -> Path:
    """Path of the script that the newest run on a site has sealed."""
    return paths.state_dir() / ROLLBACK / f"{paths.file_name(site)}.sh"


def site_scripts() -> list[Path]:
    """The scripts that the newest runs have sealed, one for each site. Raises OSError."""
    scripts = (paths.state_dir() / ROLLBACK).glob("*.sh")
    return [path for path in scripts if not path.name.endswith(f".{WITHOUT_PYTHON}")]


def site_dirs() -> list[Path]:
    """The directories in which rollbacks without a run keep lock and progress: one for each site,
    and the one that versions before this share among all."""
    shared = paths.state_dir() / ROLLBACK
    return [shared, *sorted(shared.glob(f"{SITES}/*"))]


def copies() -> list[Path]:
    """The files with copies of plans: one for each site, of its newest run."""
    directory = paths.state_dir() / ROLLBACK
    with contextlib.suppress(OSError):  # the plan may still be found elsewhere
        return [directory / name for name in os.listdir(directory) if name.endswith(".json")]
    return []


def read_owned(path: Path) -> tuple[SealedPlan, int]:
    """The plan in a file, and the uid that owns that very file. Raises InvalidFile."""
    data, owner = _read_bytes(path)
    try:
        value = record.parse(data)
    except RecordError as error:
        raise _invalid(str(path), f"not {error.expected}") from error
    return SealedPlan.from_json(value, str(path)), owner


def _read_bytes(path: Path) -> tuple[bytes, int]:
    """The bytes in a file, and the uid that owns that very file. Raises InvalidFile."""
    try:
        with open_regular(path) as file:
            info = os.fstat(file.fileno())
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise _invalid(str(path), f"cannot be read: {error.strerror}") from error
    if len(data) > SIZE_LIMIT:
        raise _invalid(str(path), "too large to be a sealed plan")
    return data, info.st_uid


def _require_start(base: Baseline) -> None:
    """Raise RecordError when nothing says how the baseline is started."""
    if base.kind == "unit" and base.unit is None:
        raise RecordError("name of the unit", "baseline.unit")
    if base.kind == "process" and base.process is None:
        raise RecordError("argv, env and cwd of the process", "baseline.process")
    if base.process is not None and not base.process.argv:
        raise RecordError("at least the program", "baseline.process.argv")
    named = base.container_id or base.container_name or base.compose_argv
    if base.kind == "container" and not named:
        raise RecordError("the id of the container", "baseline.container_id")


def _invalid(source: str, what: str, expected: str = "") -> InvalidFile:
    return InvalidFile("not a usable rollback plan", [Problem(source, 0, 0, what, expected)])
