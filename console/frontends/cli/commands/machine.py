"""What concerns this machine: its state, its watch, its remains."""

from console.frontends.cli.commands.record import (
    DECIDES,
    LOADS,
    LOOKS,
    SUPPRESS,
    Argument,
    Command,
    OneOf,
    option,
    switch,
)
from console.frontends.cli.commands.shared import FILE_SYSTEMS, JSON, SITE, SYSTEM

COMMANDS = (
    Command(
        "doctor",
        "what this machine has, and what is missing",
        "machine:doctor",
        (JSON, SITE),
        danger=LOOKS,
    ),
    Command(
        "gauges",
        "GPU, RAM, swap, pressure and disk now",
        "machine:gauges",
        (
            JSON,
            switch("--watch", "a line a second until Ctrl-C"),
            option("--every", "TIME", "with --watch: how often (default: 1s)", default="1s"),
            FILE_SYSTEMS,
        ),
        danger=LOOKS,
    ),
    Command(
        "watch",
        "the watch over the baseline, day and night: whether it answers, is as fast as it was, "
        "and what changed",
        danger=DECIDES,
        listed="whether the baseline answers, is as fast as it was, and what changed",
        parts=(
            Command(
                "run",
                "watch in the foreground, which is what the unit starts",
                "watch.commands:run",
                (SITE,),
            ),
            Command(
                "install",
                "install the systemd unit and start it",
                "watch.commands:install",
                (JSON, SITE, SYSTEM),
            ),
            Command(
                "status",
                "what the watch knows of the baseline",
                "watch.commands:status",
                (JSON, SITE),
            ),
            Command(
                "post",
                "send the events of the watch to the channels of `notify:`, once; "
                "the watch does this by itself",
                "watch.commands:post",
                (SITE,),
            ),
            Command(
                "uninstall", "stop and delete the unit", "watch.commands:uninstall", (JSON, SYSTEM)
            ),
        ),
    ),
    Command(
        "metrics",
        "baseline, gauges, runs and gates for Prometheus",
        "watch.metrics:metrics",
        (
            SITE,
            option(
                "--textfile",
                "DIR",
                "replace omni_console.prom in DIR, for node_exporter's textfile collector",
            ),
            FILE_SYSTEMS,
        ),
        danger=LOOKS,
    ),
    Command(
        "notify",
        "who is notified of what, what waits to be delivered, and what failed",
        "site.notify:notify",
        (
            JSON,
            SITE,
            Argument("part", nargs="?", default="", help=SUPPRESS),
            switch("--test", "send a test to each, and say what each answered"),
            option("--channel", "N", "with --test: only the one with this number", type=int),
        ),
        danger=LOADS,
    ),
    Command(
        "web",
        "the console and a status page in a browser, on this machine's loopback only",
        "web:web",
        (
            SITE,
            OneOf(
                option("--port", "N", "default: 8765; 0: any free one", type=int),
                option(
                    "--socket",
                    "PATH",
                    "a unix socket of this user instead, for ssh -L",
                    type="path",
                ),
            ),
            option("--address", "ADDRESS", "127.0.0.1 (default) or ::1"),
            OneOf(
                switch("--write", "browsers may answer, change and roll back"),
                switch("--readonly", "browsers only see (which is the default)"),
            ),
            option(
                "--fetch",
                "FILE",
                "only fetch the terminal that the page needs, with npm or from its package FILE",
                type="path",
                nargs="?",
                const=True,
            ),
        ),
        danger=DECIDES,
    ),
    Command(
        "clean",
        "what old trials left, with paths and bytes; removes only what is named",
        "clean:clean",
        (
            JSON,
            SITE,
            option("--yes", "ID", "remove these ids, and nothing else", nargs="*"),
            option(
                "--all",
                "DIR",
                "also list what the console did not make (it never removes this), and checkpoints "
                "in DIR",
                nargs="*",
            ),
        ),
        danger=LOOKS,
    ),
)
