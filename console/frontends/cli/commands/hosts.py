"""Several hosts over ssh."""

from console.frontends.cli.commands.record import DECIDES, Command, option, place, several, switch
from console.frontends.cli.commands.shared import (
    CONFIRM,
    FLEET,
    INPUT,
    JSON,
    PART_FLEET,
    PLAYBOOK,
    REASON,
    REMOTE_VERBS,
    SITE,
)

COMMANDS = (
    Command(
        "fleet",
        "several hosts over ssh: what each does; run, roll back and report on them",
        "fleet.commands:fleet",
        (JSON, FLEET),
        danger=DECIDES,
        parts=(
            Command(
                "run",
                "run a playbook on one host after the other; the next only after GO",
                "fleet.rollout:run",
                (
                    JSON,
                    PLAYBOOK,
                    option("--on", "HOSTS", "A,B in this order, or all", required=True),
                    INPUT,
                    switch("--yes", "take every plan, and approve whatever a run asks (recorded)"),
                    switch("--fresh", "begin a new rollout instead of going on with the last one"),
                    option(
                        "--lease",
                        "TIME",
                        "bring the baseline back when the line has been lost for TIME (default: "
                        "the fleet file's, the playbook's, the site's, else 30m)",
                    ),
                    several(
                        "--slurm",
                        "KEY=VALUE",
                        "on hosts with `slurm:`, change this key for this rollout: begin=23:00",
                    ),
                    PART_FLEET,
                ),
                follows=True,
            ),
            Command(
                "tell",
                "tell the active run of a host: next, approve, abort …",
                "fleet.commands:tell",
                (
                    JSON,
                    place("host", "HOST", "a host of the fleet file"),
                    place(
                        "verb",
                        "VERB",
                        f"one of {', '.join(REMOTE_VERBS)}",
                        choices=(*REMOTE_VERBS, "rollback"),
                    ),
                    REASON,
                    CONFIRM,
                    option("--step", "STEP", "only if its run stands at this step"),
                    PART_FLEET,
                ),
            ),
            Command(
                "rollback",
                "bring a host's baseline back now, by its own rollback; never queued",
                "fleet.commands:rollback",
                (
                    JSON,
                    place("host", "HOST", "a host, or several: A,B", nargs="?", default=""),
                    switch("--all", "every host"),
                    PART_FLEET,
                ),
            ),
            Command(
                "report",
                "who decided what on which host, as Markdown",
                "fleet.rollout:report",
                (
                    JSON,
                    place(
                        "run", "RUN", "runs by their ids (default: the newest rollout)", nargs="*"
                    ),
                    PART_FLEET,
                ),
            ),
        ),
    ),
    Command(
        "bridge",
        "the far side of `fleet`: answers questions on stdio, ends with its stdin",
        "fleet.bridge:bridge",
        (SITE,),
        danger=DECIDES,
    ),
)
