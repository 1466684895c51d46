"""Every command with its arguments, without their implementation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from console.common.errors import EXIT_MEANING
from console.frontends.cli.parser import SITE_HELP, Parser, add_command, add_input, add_start
from console.frontends.cli.site.arguments import NAMES, site_commands

VERSION = "0.1.0"
INTERNAL = "(internal)"
ONLY_HELP = "only the files that match"


def parser_for(argv: list[str]) -> argparse.ArgumentParser:
    """A parser with only the commands that `argv` may mean: making all takes a tenth of the time to
    the first frame."""
    codes = "  ".join(f"{int(code)} {text}\n" for code, text in EXIT_MEANING.items())
    Parser.as_json = "--json" in argv  # of the commands' own parsers too
    parser = Parser(
        prog="omni-console",
        description="Operator console for large language models on your own workstation. "
        "Without a command it opens its screens.",
        epilog=f"exit codes:\n  {codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"omni-console {VERSION}")
    parser.set_defaults(handler="console:open_console", json=False)
    parser.add_argument("--site", dest="console_site", metavar="FILE", help=SITE_HELP)
    parser.add_argument(
        "--readonly", action="store_true", help="open screens that only show, and change nothing"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="open the screens on the rehearsal, not the site"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    meant = [make for make, names in GROUPS if argv[:1] and argv[0] in names]
    for make in meant or [make for make, _ in GROUPS]:
        make(commands)
    return parser


def _run_commands(commands: Any) -> None:
    run = add_command(
        commands, "run", "run:run", "start a run and follow it; Ctrl-C detaches", site=True
    )
    run.add_argument("playbook", metavar="PLAYBOOK")
    add_start(run)
    _rehearsal(run)
    run.add_argument("--keep", action="store_true", help="with --rehearse: keep its baseline up")
    _tune(commands)
    attach = add_command(commands, "attach", "run:attach", "follow a run from any terminal")
    attach.add_argument("run", nargs="?", metavar="RUN")
    resume = add_command(commands, "resume", "run:resume", "resume a run whose runner died")
    resume.add_argument("run", nargs="?", metavar="RUN")
    resume.add_argument(
        "--from", dest="from_step", metavar="STEP", help="run STEP and what follows it again"
    )
    resume.add_argument("--detach", action="store_true", help="return as soon as it runs")
    abort = add_command(commands, "abort", "run:abort", "stop a run and roll back what it started")
    abort.add_argument("run", nargs="?", metavar="RUN")
    abort.add_argument("--reason", default="", metavar="TEXT", help="why (recorded)")
    tell = add_command(commands, "tell", "run:tell", "tell a run: next, auto, pause, approve, …")
    tell.add_argument("run", metavar="RUN")
    tell.add_argument(
        "verb",
        choices=["next", "auto", "continue", "pause", "approve", "reject", "retry", "measure",
                 "skip", "abort", "rollback", "status"],
    )  # fmt: skip
    tell.add_argument("--reason", default="", metavar="TEXT", help="why (skip needs it)")
    tell.add_argument("--confirm", default="", metavar="WORD", help="the word an approval asks for")
    _several(tell, "--input", "NAME=VALUE", "change an input (retry, measure)")
    tell.add_argument("--step", help="only if this is the current step")
    tell.add_argument("--attempt", type=int, metavar="N", help="only if this is its attempt")
    tell.add_argument("--evidence", metavar="HASH", help="only if the evidence is still this")
    runner = add_command(commands, "runner", "run:runner", INTERNAL, hidden=True)
    runner.add_argument("run")
    runner.add_argument("--ready-fd", type=int, default=-1)
    runner.add_argument("--resume", action="store_true")
    runner.add_argument("--from", dest="from_step", default="")
    runner.add_argument("--close", action="store_true")


def _tune(commands: Any) -> None:
    tune = add_command(
        commands, "tune", "run:tune", "find the flags with which an engine is fastest", site=True
    )
    tune.add_argument("playbook", nargs="?", default="", metavar="PLAYBOOK")
    tune.add_argument("--baseline", action="store_true", help="the site's baseline, not a playbook")
    tune.add_argument("--service", default="", metavar="NAME", help="which service of the playbook")
    tune.add_argument(
        "--prefer", choices=("decode", "prompt", "request"), default="decode",
        help="the rate that counts: generating, reading a prompt, or a whole request",
    )  # fmt: skip
    tune.add_argument("--points", type=int, default=60, metavar="N", help="measure N at most")
    tune.add_argument(
        "--depth", type=int, default=0, metavar="TOKENS", help="context before each answer"
    )
    tune.add_argument("--most-ram", default="", metavar="SIZE", help="what may win takes no more")
    tune.add_argument("--most-vram", default="", metavar="SIZE", help="the same of GPU memory")
    tune.add_argument(
        "flags", nargs="*", metavar="-- FLAG VALUES",
        help="flags with the values to try: -- -t 8,16 -ngl '0..60 by 4' --mlock true,false",
    )  # fmt: skip
    tune.add_argument("--fresh", action="store_true", help="measure again what is known")
    add_start(tune)


def _rehearsal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rehearse", action="store_true",
        help="rehearse it: images and GPUs are stand-ins, the rest is real",
    )  # fmt: skip
    parser.add_argument(
        "--fault", default="", metavar="NAME", help="with --rehearse: what goes wrong"
    )


def _look_commands(commands: Any) -> None:
    plan = add_command(
        commands, "plan", "check:plan", "what a playbook would do, effect by effect", site=True
    )
    plan.add_argument("playbook", metavar="PLAYBOOK")
    add_input(plan)
    _rehearsal(plan)
    lint = add_command(
        commands, "lint", "check:lint",
        "faults in playbooks, sites, Dockerfiles, compose files and scripts", site=True,
    )  # fmt: skip
    lint.add_argument("paths", nargs="*", metavar="PATH")
    lint.add_argument("--sarif", action="store_true", help="SARIF 2.1.0 on stdout")
    lint.add_argument("--rules", action="store_true", help="every rule: what, why, how to fix it")
    schema = add_command(
        commands, "schema", "check:schema", "the JSON Schema of a playbook or a site file"
    )
    schema.add_argument("what", nargs="?", choices=("playbook", "site"), default="playbook")
    schema.add_argument(
        "--markdown", action="store_true", help="the format as Markdown (docs/reference/format.md)"
    )
    add_command(commands, "runs", "show:runs", "every run, newest first")
    show = add_command(commands, "show", "show:show", "a run: state, steps, figures, verdicts")
    show.add_argument("run", nargs="?", metavar="RUN")
    report = add_command(
        commands, "report", "show:report", "the report of a run, or a table of several runs"
    )
    report.add_argument("run", nargs="*", metavar="RUN")
    report.add_argument("--to", default="", metavar="FILE", help="write it there, charts beside it")
    report.add_argument(
        "--markdown", action="store_true", help="the table of several runs as Markdown"
    )
    logs = add_command(
        commands, "logs", "show:logs", "the last lines of a service or step of a run"
    )
    logs.add_argument("name", metavar="SERVICE|STEP")
    logs.add_argument("--run", metavar="RUN")
    logs.add_argument("--lines", type=int, default=50, metavar="N")
    add_command(commands, "keys", "console:keys", "every key of the screens, as a table")


def _lesson_commands(commands: Any) -> None:
    lessons = add_command(commands, "lessons", "lessons:lessons", "earlier lessons, by word or id")
    lessons.add_argument("query", nargs="*", metavar="QUERY", help="words, or an id like F-022")
    lessons.add_argument("--due", action="store_true", help="what is due for review, oldest first")
    lessons.add_argument(
        "--run", action="store_true", help="with --due: run the commands; changes no status"
    )
    lessons.add_argument("--draft", metavar="RUN", help="a new lesson from a run that is over")
    lessons.add_argument(
        "--as", dest="as_", choices=["F", "S", "P"], default="",
        help="with --draft: failure, success or pivot (default: by how the run ended)",
    )  # fmt: skip
    lessons.add_argument(
        "--brief", action="store_true", help="what not to do and what works, a line for each lesson"
    )
    lessons.add_argument(
        "--export", metavar="FILE",
        help="write that as Markdown for agents and newcomers, like AGENTS.md (-: stdout)",
    )  # fmt: skip
    lessons.add_argument(
        "--force", action="store_true", help="with --export: replace a file of somebody else's"
    )


def _machine_commands(commands: Any) -> None:
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
    recorder.add_argument("run", nargs="?", metavar="RUN")
    recorder.add_argument(
        "--seconds", type=float, default=120.0, metavar="N", help="how far back (default: 120)"
    )
    bench = add_command(commands, "bench", "bench:bench", "measure an OpenAI-compatible endpoint")
    bench.add_argument("url", metavar="URL")
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


def _check_commands(commands: Any) -> None:
    check = commands.add_parser(
        "check", help="preflight: a GGUF's architecture, a checkpoint's fit, a host, a build",
        description="what can be known before anything is downloaded or started",
    )  # fmt: skip
    parts = check.add_subparsers(title="what", metavar="WHAT", required=True, parser_class=Parser)
    gguf = add_command(parts, "gguf", "check:gguf",
                "whether a build of llama.cpp knows a GGUF's architecture", site=True)  # fmt: skip
    gguf.add_argument("what", metavar="PATH|URL|REPO")
    gguf.add_argument("--image", default="", metavar="REF", help="ask the build in this image")
    gguf.add_argument("--binary", default="", metavar="PATH", help="ask this llama-server")
    gguf.add_argument("--service", default="baseline", metavar="NAME", help="the service to ask")
    gguf.add_argument("--include", action="append", default=[], metavar="GLOB", help=ONLY_HELP)
    fit = add_command(parts, "checkpoint", "check:checkpoint",
               "a model's true size, and whether it fits, with the arithmetic",
               site=True)  # fmt: skip
    fit.add_argument("what", metavar="REPO[@REV]|URL|PATH")
    _several(fit, "--include", "GLOB", ONLY_HELP)
    _several(fit, "--exclude", "GLOB", "not the files that match")
    fit.add_argument("--loader", choices=["", "mmap", "resident", "convert"], default="",
                     metavar="mmap|resident|convert", help="how it is loaded")  # fmt: skip
    fit.add_argument("--engine", default="", metavar="NAME", help="llama.cpp, sglang, kt-kernel, …")
    fit.add_argument("--ctx", type=int, metavar="N", help="tokens of context")
    fit.add_argument("--to", default="", metavar="DIR", help="where it would be downloaded to")
    fit.add_argument("--line", default="", metavar="RATE",
                     help="speed of your line, like 500Mbit/s")  # fmt: skip
    fit.add_argument("--beside", action="store_true", help="the baseline goes on serving beside it")
    fit.add_argument("--args", nargs="...", default=[], metavar="ARG",
                     help="the engine's own arguments: everything that follows")  # fmt: skip
    _check_host(parts)
    _check_build(parts)
    imports = add_command(
        parts, "imports", "check:imports", "whether modules of an image can be imported", site=True
    )
    imports.add_argument("image", metavar="IMAGE")
    imports.add_argument("modules", nargs="+", metavar="MODULE")


def _check_host(parts: Any) -> None:
    host = add_command(
        parts, "host", "check:host", "whether this machine has what you ask for", site=True
    )
    host.add_argument(
        "--method", default="", metavar="NAME", help="kt-kernel's method, like AMXINT8"
    )
    host.add_argument("--port", action="append", type=int, default=[], metavar="N",
                      help="a port that has to be free")  # fmt: skip
    _several(host, "--image", "REF", "an image that has to be here")
    _several(host, "--torch", "REF", "an image whose PyTorch needs kernels for the cards")
    _several(host, "--compose", "FILE", "a compose file that has to be valid")
    for flag, metavar, words in (
        ("--disk", "DIR", "a directory whose disk is checked"),
        ("--need", "BYTES", "free at --disk, like 700GB"),
        ("--cuda", "VERSION", "CUDA version for cards, driver and `--tool nvcc`"),
        ("--compute", "VERSION", "lowest compute capability that will do, like 12.0"),
        ("--driver", "VERSION", "oldest driver that will do, like 580.126.09"),
    ):
        host.add_argument(flag, default="", metavar=metavar, help=words)
    _several(host, "--tool", "NAME", "a program that a build needs, like nvcc or cmake")
    _several(host, "--header", "NAME", "a header that a build needs, like nccl.h")
    host.add_argument("--conda", default="", metavar="DIR",
                      help="the conda environment that they may be in")  # fmt: skip
    host.add_argument("--sched-ext", action="store_true", help="the kernel has to have sched_ext")


def _check_build(parts: Any) -> None:
    build = add_command(
        parts, "build", "check:build", "every fault of a build known before it", site=True
    )
    build.add_argument("what", metavar="PLAYBOOK|DIR", help="its builds; or a source tree")
    build.add_argument("--dockerfile", default="", metavar="FILE", help="what builds DIR")
    build.add_argument("--target", default="", metavar="STAGE", help="the stage that is built")
    _several(build, "--build-arg", "NAME=VALUE", "a build argument")
    _several(build, "--module", "MODULE", "a module that the image has to import")
    add_input(build)


def _several(parser: Any, flag: str, metavar: str, words: str) -> None:
    """Add an option that may be given more than once."""
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=words)


def _emergency_commands(commands: Any) -> None:
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
        "--candidate", choices=["fast", "slow"], default="fast", help="default: fast (slow: NO-GO)"
    )
    demo.add_argument("--plain", action="store_true", help="lines instead of screens")
    demo.add_argument("--stop", action="store_true", help="end the demo and leave nothing behind")


def _boot_commands(commands: Any) -> None:
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


def _clean_commands(commands: Any) -> None:
    clean = add_command(
        commands, "clean", "clean:clean",
        "what old trials left, with paths and bytes; removes only what is named", site=True,
    )  # fmt: skip
    clean.add_argument("--yes", nargs="*", metavar="ID", help="remove these, never everything")
    clean.add_argument(
        "--all", nargs="*", metavar="DIR",
        help="list also what the console did not make and never removes, checkpoints in DIR too",
    )  # fmt: skip


GROUPS: tuple[tuple[Callable[[Any], None], frozenset[str]], ...] = (
    (_run_commands, frozenset({"run", "tune", "attach", "resume", "abort", "tell", "runner"})),
    (_look_commands, frozenset({"plan", "lint", "schema", "runs", "show", "report", "logs",
                                "keys"})),
    (_lesson_commands, frozenset({"lessons"})),
    (_machine_commands, frozenset({"doctor", "gauges", "recorder", "bench"})),
    (_check_commands, frozenset({"check"})),
    (_clean_commands, frozenset({"clean"})),
    (site_commands, NAMES),
    (_boot_commands, frozenset({"boot"})),
    (_emergency_commands, frozenset({"rollback", "promote", "demo"})),
)  # fmt: skip


def described() -> dict[str, str]:
    """Every command that a person uses, with what it does."""
    commands = Parser().add_subparsers(parser_class=Parser)
    for make, _ in GROUPS:
        make(commands)
    return {
        name: one.description
        for name, one in commands.choices.items()
        if one.description and not one.description.startswith(INTERNAL)
    }
