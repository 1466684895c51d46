"""What brings the baseline back."""

from console.frontends.cli.commands.record import (
    DECIDES,
    RESCUES,
    SUPPRESS,
    Argument,
    Command,
    switch,
)
from console.frontends.cli.commands.shared import JSON, SITE, SYSTEM

COMMANDS = (
    Command(
        "rollback",
        "bring the baseline back, now; nothing is deleted",
        "rollback:rollback",
        (
            JSON,
            SITE,
            switch("--rehearse", "the rehearsal's baseline, never the real one"),
            switch("--if-interrupted", "only if a run left the baseline down (for the boot unit)"),
            Argument("--by", default="", choices=("watch", "key"), help=SUPPRESS),
        ),
        danger=RESCUES,
    ),
    Command(
        "boot",
        "the systemd unit that brings the baseline back after a reboot in an outage",
        danger=DECIDES,
        listed="bring the baseline back if the machine reboots in an outage",
        parts=(
            Command(
                "install",
                "install the unit; it acts at the next boot",
                "machine:install",
                (JSON, SITE, SYSTEM),
            ),
            Command("remove", "disable and delete the unit", "machine:remove", (JSON, SYSTEM)),
            Command(
                "status", "whether the unit would act after a reboot", "machine:status", (JSON,)
            ),
        ),
    ),
)
