"""Arguments and words that several commands have in common."""

from console.frontends.cli.commands.record import SUPPRESS, option, place, several, switch, text

SITE_HELP = (
    "site file (default: $OMNI_SITE, else ~/.config/omni-console/site.yaml, else "
    "/etc/omni-console/site.yaml, else the demo's)"
)
FLEET_HELP = "fleet file (default: $OMNI_FLEET, else ~/.config/omni-console/fleet.yaml)"
INPUT_HELP = "give an input of the playbook a value"
PLAYBOOK_HELP = "a file, or the name of a playbook (omni-console playbooks lists them)"
RUN_HELP = "a run by its id or the end of it (default: the newest)"
VERBS = (
    "next", "auto", "continue", "pause", "approve", "reject", "retry", "measure", "skip", "abort",
    "rollback", "status",
)  # fmt: skip
"""What a run can be told."""
REMOTE_VERBS = tuple(verb for verb in VERBS if verb not in ("rollback", "status"))
"""What a run on another host can be told; a rollback is a command of its own."""

JSON = switch("--json", "one JSON object on stdout")
SITE = option("--site", "FILE", SITE_HELP, type="path")
RUN = place("run", "RUN", RUN_HELP, nargs="?")
INPUT = several("--input", "NAME=VALUE", INPUT_HELP)
PLAYBOOK = place("playbook", "PLAYBOOK", PLAYBOOK_HELP)
ANY_PLAYBOOK = place("playbook", "PLAYBOOK", PLAYBOOK_HELP, nargs="?", default="")
STEP = switch("--step", "pause before every step")
DETACH = switch("--detach", "return as soon as it runs")
YES = switch("--yes", "approve whatever asks (recorded)")
LEASE = option(
    "--lease",
    "TIME",
    "bring the baseline back when nobody has been attached for TIME (30m; 0: never)",
)
OVERRIDE = several("--override", "RULE=WHY", "run despite this lint error (recorded)")
REHEARSE = switch("--rehearse", "rehearse it: images and GPUs are stand-ins, the rest is real")
FAULT = text("--fault", "NAME", "with --rehearse: what goes wrong")
FILE_SYSTEMS = several("--path", "PATH", "a file system (default: /)")
SYSTEM = switch("--system", "a system unit instead of your own (root)")
REASON = text("--reason", "TEXT", "why (skip needs it)")
CONFIRM = text("--confirm", "WORD", "the word an approval asks for")
FLEET = option("--fleet", "FILE", FLEET_HELP, type="path")
PART_FLEET = option("--fleet", "FILE", FLEET_HELP, type="path", default=SUPPRESS)
"""The same behind a part: a default would take the place of `fleet --fleet FILE PART`."""
UNATTENDED = (YES, LEASE, OVERRIDE)
"""What a run takes for the time in which nobody is there."""
START = (INPUT, STEP, DETACH, *UNATTENDED)
"""What every command that starts a run takes."""
REHEARSAL = (REHEARSE, FAULT)
