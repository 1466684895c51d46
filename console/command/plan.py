"""`plan`, `lint`, `schema`: what would run, before anything does."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from console.command.common import playbook_of, site_of
from console.document.reader import parse, read_text
from console.errors import Exit, InvalidFile
from console.playbook.load import load_playbook
from console.run.baseline import restore_time
from console.run.plan import Plan, PlannedStep, make_plan
from console.services.base import ComposeSpec, ContainerSpec
from console.site.load import find_site, load_site
from console.text import clean
from console.units import format_duration

BAR = "─" * 72


def plan(args: Namespace) -> int:
    """Every argv, effect and planned duration, and where the baseline goes down.

    Exit 2 when the playbook would be refused by `run` (something is not built yet).
    """
    site = site_of(args.site)
    playbook = playbook_of(args.playbook, args.input, site, planning=True)
    made = make_plan(playbook, site, restore_time(site.name))
    if args.json:
        print(json.dumps(as_json(made)))
    else:
        print("\n".join(lines(made)))
    return int(Exit.USAGE if playbook.unbuilt else Exit.OK)


def as_json(made: Plan) -> dict[str, object]:
    return {
        "playbook": made.playbook.name,
        "title": made.playbook.model.title,
        "digest": made.playbook.digest,
        "site": made.site.name,
        "inputs": made.playbook.inputs,
        "takes_baseline_down": made.takes_down,
        "steps": [
            {"id": s.id, "phase": s.phase, "kind": s.kind, "title": s.title,
             "effects": list(s.effects), "timeout_s": s.limit_s, "planned_s": s.takes_s,
             "implicit": s.implicit, "baseline_down": s.baseline_down}
            for s in made.steps
        ],
        "refused": [str(p) for p in made.playbook.unbuilt],
    }  # fmt: skip


def lines(made: Plan) -> list[str]:
    """The plan as an operator reads it before pressing enter."""
    model = made.playbook.model
    out = []
    if made.playbook.unbuilt:
        out += ["THIS PLAYBOOK WOULD NOT RUN: this version has not built", ""]
        out += [*(f"  {clean(str(p))}" for p in made.playbook.unbuilt), ""]
    out.append(clean(model.title))
    if model.objective:
        out.append(f"  objective  {clean(model.objective)}")
    out.append(f"  site       {made.site.name}: baseline {clean(_baseline(made))}")
    out += [f"  input      {_input(made, k, v)}" for k, v in made.playbook.inputs.items()]
    out += [f"  secret     {clean(str(s))}" for s in made.playbook.secrets.values()]
    if model.lessons:
        out.append(f"  lessons    read first: {', '.join(clean(x) for x in model.lessons)}")
    out += [f"  guard      {clean(_pairs(g))} (not built yet)" for g in model.guards]
    out += [f"  WARNING    {clean(w)}" for w in warnings(made)]
    planned = [s.takes_s for s in made.steps if s.takes_s and not s.implicit]
    if planned:
        out.append(f"  planned    {format_duration(sum(planned))} where a duration is given")
    out.append(f"  baseline   {_outage_words(made)}")
    phase = ""
    for number, step in enumerate(made.steps, 1):
        if step.phase != phase:
            phase = step.phase
            out += ["", f"{clean(phase)} {BAR}"[:72]]
        out += step_lines(number, step)
    return out


def warnings(made: Plan) -> list[str]:
    """What an operator would want to know first: no limit, a secret or a path that is not there."""
    found = []
    for name, spec in made.services.items():
        limited = not isinstance(spec.runs, ContainerSpec | ComposeSpec) or spec.runs.memory_bytes
        if not limited and any(s.service == name for s in made.steps):
            found.append(f"{name} has no memory limit: a load that is too big takes the host down")
        for file in spec.runs.files if isinstance(spec.runs, ComposeSpec) else ():
            if not file.exists():
                found.append(f"{name}: {file} does not exist")
    for secret in made.playbook.secrets.values():
        try:
            secret.read()
        except ValueError as error:
            found.append(f"secret {secret.name}: {error}")
    for name, declared in made.playbook.model.inputs.items():
        value = made.playbook.inputs.get(name)
        if declared.must_exist and not Path(str(value)).exists():
            found.append(f"input {name}: {value} does not exist")
    return found


def _pairs(values: dict[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def step_lines(number: int, step: PlannedStep) -> list[str]:
    """A row: number, id, times; then each effect. `!` marks an outage."""
    takes = f"about {format_duration(step.takes_s)}, " if step.takes_s else ""
    mark = "!" if step.kind == "baseline:stop" else "│" if step.baseline_down else " "
    head = f"{mark}{number:>3}. {step.id}: {clean(step.title)}"
    head += f"  ({takes}at most {format_duration(step.limit_s)})"
    return [head, *(f"{mark}       {clean(effect)}" for effect in step.effects)]


def _baseline(made: Plan) -> str:
    model = made.site.model.baseline
    if model.container:
        what = f"container {model.container}"
    elif model.compose:
        what = f"compose service {model.compose.service}"
    else:
        what = "host process"
    return f"{what} at {model.url}"


def _input(made: Plan, name: str, value: object) -> str:
    if name in made.playbook.missing:
        return f"{clean(name)} IS REQUIRED: --input {clean(name)}=… (a stand-in is shown below)"
    return f"{clean(name)} = {clean(str(value))}"


def _outage_words(made: Plan) -> str:
    """Where the baseline is down, one stretch an outage."""
    stretches: list[list[str]] = []
    for step in made.steps:
        if step.kind == "baseline:stop":
            stretches.append([])
        if step.baseline_down and stretches:
            stretches[-1].append(step.id)
    if not stretches:
        return "serves throughout"
    words = [f"from {s[0]} to the end of {s[-1]}" for s in stretches if s]
    return f"DOWN {', and '.join(words)}; rows marked │"


def lint(args: Namespace) -> int:
    """Check files strictly; all problems of all files, then exit 2 if there were any."""
    problems = []
    services = _site_services(args.site)
    for text in args.paths:
        try:
            lint_one(Path(text), services)
        except InvalidFile as error:
            problems += error.problems
    if args.json:
        print(json.dumps({"problems": [str(p) for p in problems]}))
    else:
        for problem in problems:
            print(clean(str(problem), 1000))
        if not problems:
            print(f"{len(args.paths)} file(s), no problems")
    return int(Exit.USAGE if problems else Exit.OK)


def _site_services(given: str | None) -> frozenset[str]:
    """Services a playbook may use without declaring them: the site's, or the demo's."""
    path = find_site(given)
    if path is None:
        from console.demo.site import NAMES

        return frozenset(NAMES[1:])
    return frozenset(load_site(path).model.services)


def lint_one(path: Path, services: frozenset[str] = frozenset()) -> None:
    """A site file by its schema line, else a playbook. Raises InvalidFile."""
    title = "the file cannot be used"
    data = parse(read_text(path, title), str(path), title).data
    if isinstance(data, dict) and str(data.get("schema", "")).startswith("omni.site/"):
        load_site(path)
    else:
        playbook = load_playbook(path, planning=True, site_services=services)
        if playbook.unbuilt:
            raise InvalidFile(title, list(playbook.unbuilt))


def schema(args: Namespace) -> int:
    from console.playbook.schema import playbook_schema

    print(json.dumps(playbook_schema(), indent=None if args.json else 1))
    return int(Exit.OK)
