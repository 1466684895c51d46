"""The arguments of what concerns this machine: its state, its remains, an emergency."""

from __future__ import annotations

import argparse
from typing import Any

from console.config.locate import CANDIDATES
from console.frontends.cli.parser import add_command, add_run, path


def machine_commands(commands: Any) -> None:
    add_command(commands, "doctor", "machine:doctor", "what this machine has, and what is missing",
         site=True)  # fmt: skip
    gauges = add_command(
        commands, "gauges", "machine:gauges", "GPU, RAM, swap, pressure and disk now"
    )
    gauges.add_argument("--watch", action="store_true", help="a line a second until Ctrl-C")
    gauges.add_argument(
        "--every", default="1s", metavar="TIME", help="with --watch: how often (default: 1s)"
    )
    gauges.add_argument(
        "--path", action="append", default=[], metavar="PATH", help="a file system (default: /)"
    )
    recorder = add_command(
        commands, "recorder", "show:recorder",
        "the last two minutes before a crash or a kill, from a run's flight recorder",
    )  # fmt: skip
    add_run(recorder)
    recorder.add_argument(
        "--seconds", type=float, default=120.0, metavar="N", help="how far back (default: 120)"
    )
    bench = add_command(commands, "bench", "bench:bench", "measure an OpenAI-compatible endpoint")
    bench.add_argument("url", metavar="URL", help="where it answers, like http://127.0.0.1:8000")
    bench.add_argument("--runs", type=int, default=9, metavar="N", help="default: 9")
    bench.add_argument(
        "--max-runs", type=int, metavar="N",
        help="at most N runs when they vary (default: a third more than --runs)",
    )  # fmt: skip
    bench.add_argument(
        "--timeout", default="10m", metavar="DURATION", help="of one request (default: 10m)"
    )
    bench.add_argument(
        "--max-tokens", type=int, default=256, metavar="N", help="of one answer (default: 256)"
    )
    bench.add_argument("--model", default="", metavar="NAME", help="the model to ask for")
    bench.add_argument(
        "--expect", default="", metavar="PATTERN",
        help="a pattern that each answer has to match somewhere, else its run is void",
    )  # fmt: skip
    bench.add_argument(
        "--endpoint", choices=["chat", "completions"], default="chat", help="default: chat"
    )
    bench.add_argument(
        "--prompt-lengths", type=int, nargs="+", default=[], metavar="TOKENS",
        help="afterwards, the prompt rate with prompts of TOKENS tokens",
    )  # fmt: skip
    bench.add_argument(
        "--concurrency", type=int, nargs="+", default=[], metavar="N",
        help="afterwards, the same with N requests at once",
    )  # fmt: skip


def emergency_commands(commands: Any) -> None:
    rollback = add_command(
        commands, "rollback", "rollback:rollback",
        "bring the baseline back, now; nothing is deleted", site=True,
    )  # fmt: skip
    rollback.add_argument(
        "--rehearse", action="store_true", help="the rehearsal's baseline, never the real one"
    )
    rollback.add_argument(
        "--if-interrupted", action="store_true",
        help="only if a run left the baseline down (for the boot unit)",
    )  # fmt: skip
    rollback.add_argument("--by", choices=("watch", "key"), default="", help=argparse.SUPPRESS)
    promote = add_command(
        commands, "promote", "run:promote",
        "accept the candidate that a cutover left on the production port", site=True,
    )  # fmt: skip
    promote.add_argument("--why", default="", metavar="TEXT", help="recorded reason (required)")
    promote.add_argument(
        "--yes", action="store_true", help="do not ask (for use without a terminal)"
    )
    demo = add_command(
        commands, "demo", "demo:demo", "a whole run on real llama.cpp servers, no GPU"
    )
    demo.add_argument(
        "--candidate",
        choices=CANDIDATES,
        default=CANDIDATES[0],
        help="default: fast (slow and garbled: NO-GO)",
    )
    demo.add_argument("--plain", action="store_true", help="lines instead of screens")
    demo.add_argument("--stop", action="store_true", help="end the demo and leave nothing behind")


def boot_commands(commands: Any) -> None:
    boot = commands.add_parser(
        "boot", help="bring the baseline back if the machine reboots in an outage",
        description="the systemd unit that brings the baseline back after a reboot in an outage",
    )  # fmt: skip
    parts = boot.add_subparsers(required=True, metavar="PART")
    starts = "install the unit; it acts at the next boot"
    install = add_command(parts, "install", "machine:install", starts, site=True)
    remove = add_command(parts, "remove", "machine:remove", "disable and delete the unit")
    add_command(parts, "status", "machine:status", "whether the unit would act after a reboot")
    for part in (install, remove):
        part.add_argument(
            "--system", action="store_true", help="a system unit instead of your own (root)"
        )


def watch_commands(commands: Any) -> None:
    watch = commands.add_parser(
        "watch", help="whether the baseline answers, is as fast as it was, and what changed",
        description="the watch over the baseline, day and night: whether it answers, is as fast as "
        "it was, and what changed",
    )  # fmt: skip
    parts = watch.add_subparsers(required=True, metavar="PART")
    add_command(
        parts, "run", "watch.commands:run",
        "watch in the foreground, which is what the unit starts", site=True, data=False,
    )  # fmt: skip
    starts = "install the systemd unit and start it"
    install = add_command(parts, "install", "watch.commands:install", starts, site=True)
    add_command(
        parts, "status", "watch.commands:status", "what the watch knows of the baseline", site=True
    )
    add_command(
        parts, "post", "watch.commands:post",
        "post what the watch has told to `notify:` of the site, once; the watch does it itself",
        site=True, data=False,
    )  # fmt: skip
    gone = add_command(parts, "uninstall", "watch.commands:uninstall", "stop and delete the unit")
    for part in (install, gone):
        part.add_argument(
            "--system", action="store_true", help="a system unit instead of your own (root)"
        )
    metrics = add_command(
        commands, "metrics", "watch.metrics:metrics",
        "baseline, gauges, runs and gates for Prometheus", site=True, data=False,
    )  # fmt: skip
    metrics.add_argument(
        "--textfile", metavar="DIR",
        help="replace omni_console.prom in DIR, for node_exporter's textfile collector",
    )  # fmt: skip
    metrics.add_argument(
        "--path", action="append", default=[], metavar="PATH", help="a file system (default: /)"
    )


def web_commands(commands: Any) -> None:
    web = add_command(
        commands, "web", "web:web",
        "the console and a status page in a browser, on this machine's loopback only", site=True,
        data=False,
    )  # fmt: skip
    where = web.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, metavar="N", help="default: 8765; 0: any free one")
    where.add_argument(
        "--socket", type=path, metavar="PATH",
        help="a unix socket of this user instead, for ssh -L",
    )  # fmt: skip
    web.add_argument("--address", metavar="ADDRESS", help="127.0.0.1 (default) or ::1")
    rights = web.add_mutually_exclusive_group()
    rights.add_argument(
        "--write", action="store_true", help="browsers may answer, change and roll back"
    )
    rights.add_argument(
        "--readonly", action="store_true", help="browsers only see (which is the default)"
    )
    web.add_argument(
        "--fetch", nargs="?", const=True, type=path, metavar="FILE",
        help="only fetch the terminal that the page needs, with npm or from its package FILE",
    )  # fmt: skip


def clean_commands(commands: Any) -> None:
    clean = add_command(
        commands, "clean", "clean:clean",
        "what old trials left, with paths and bytes; removes only what is named", site=True,
    )  # fmt: skip
    clean.add_argument("--yes", nargs="*", metavar="ID", help="remove these, never everything")
    clean.add_argument(
        "--all", nargs="*", metavar="DIR",
        help="list also what the console did not make and never removes, checkpoints in DIR too",
    )  # fmt: skip
