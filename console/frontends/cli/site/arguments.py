"""The arguments of `init`, `adopt`, `notify` and `schedule`."""

from __future__ import annotations

import argparse
from typing import Any

from console.frontends.cli.parser import add_command

NAMES = frozenset({"init", "adopt", "notify", "schedule"})


def site_commands(commands: Any) -> None:
    init = add_command(
        commands, "init", "site.init:init",
        "find the model servers of this machine and write the site file for one of them",
    )  # fmt: skip
    init.add_argument(
        "--pick", default="", metavar="N|URL",
        help="which one is the baseline: its number, URL, pid, container or unit",
    )  # fmt: skip
    init.add_argument(
        "--reference", default="", metavar="RATE",
        help="its known speed in tok/s; `measure` (default: three answers) or `none`",
    )  # fmt: skip
    init.add_argument(
        "--output", default="", metavar="FILE",
        help="where to write (default: $OMNI_SITE, else ~/.config/omni-console/site.yaml)",
    )  # fmt: skip
    init.add_argument("--force", action="store_true", help="replace a file that is there")
    init.add_argument("--yes", action="store_true", help="ask nothing")
    init.add_argument("--list", action="store_true", help="only show what serves; write nothing")
    adopt = add_command(
        commands, "adopt", "site.adopt:adopt",
        "take over a running server as the site's baseline, without a restart", site=True,
    )  # fmt: skip
    adopt.add_argument(
        "what", nargs="?", default="", metavar="PID|CONTAINER|UNIT",
        help="default: what answers at the baseline's URL",
    )  # fmt: skip
    notify = add_command(
        commands, "notify", "site.notify:notify",
        "who is told what happens here, what waits to be delivered, and what failed", site=True,
    )  # fmt: skip
    notify.add_argument("part", nargs="?", default="", help=argparse.SUPPRESS)
    notify.add_argument(
        "--test", action="store_true", help="send a test to each, and say what each answered"
    )
    notify.add_argument(
        "--channel", type=int, metavar="N", help="with --test: only the one with this number"
    )
    schedule = add_command(
        commands, "schedule", "site.schedule:schedule",
        "runs that start by the clock: list them, `install` those of the site, `remove NAME`",
        site=True,
    )  # fmt: skip
    schedule.add_argument(
        "part", nargs="?", default="", metavar="install|remove", help="default: list"
    )
    schedule.add_argument("name", nargs="?", default="", metavar="NAME", help="default: all")
