"""What shows runs, reports and lessons."""

from console.frontends.cli.commands.record import (
    LOOKS,
    Argument,
    Command,
    option,
    place,
    switch,
    text,
)
from console.frontends.cli.commands.shared import JSON, RUN, RUN_HELP

COMMANDS = (
    Command("runs", "every run, newest first", "show:runs", (JSON,), danger=LOOKS),
    Command(
        "show", "a run: state, steps, figures, verdicts", "show:show", (JSON, RUN), danger=LOOKS
    ),
    Command(
        "report",
        "the report of a run, or a table of several runs",
        "show:report",
        (
            JSON,
            place("run", "RUN", RUN_HELP, nargs="*"),
            text("--to", "FILE", "write the report to FILE, with its charts beside it"),
            switch("--markdown", "the table of several runs as Markdown"),
        ),
        danger=LOOKS,
    ),
    Command(
        "logs",
        "the last lines of a service or step of a run",
        "show:logs",
        (
            JSON,
            place("name", "SERVICE|STEP", "whose output"),
            option("--run", "RUN", RUN_HELP),
            option("--lines", "N", "how many, from the end (default: 50)", type=int, default=50),
        ),
        danger=LOOKS,
    ),
    Command(
        "recorder",
        "the last two minutes before a crash or a kill, from a run's flight recorder",
        "show:recorder",
        (
            JSON,
            RUN,
            option("--seconds", "N", "how far back (default: 120)", type=float, default=120.0),
        ),
        danger=LOOKS,
    ),
    Command(
        "lessons",
        "earlier lessons, by word or id",
        "lessons:lessons",
        (
            JSON,
            place("query", "QUERY", "words, or an id like F-022", nargs="*"),
            switch("--due", "what is due for review, oldest first"),
            switch("--run", "with --due: run the commands; changes no status"),
            option("--draft", "RUN", "a new lesson from a run that is over"),
            Argument(
                "--as",
                dest="as_",
                default="",
                choices=("F", "S", "P"),
                help="with --draft: failure, success or pivot (default: by how the run ended)",
            ),
            switch("--brief", "what not to do and what works, a line for each lesson"),
            option(
                "--export",
                "FILE",
                "write the lessons as Markdown for agents and newcomers, like AGENTS.md "
                "(-: stdout)",
            ),
            switch("--force", "with --export: replace a file that the console has not written"),
        ),
        danger=LOOKS,
    ),
)
