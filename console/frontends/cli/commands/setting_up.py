"""What sets the console up, and what is needed to write its files."""

from console.config.candidates import CANDIDATES
from console.frontends.cli.commands.record import (
    DECIDES,
    INTERNAL,
    LOOKS,
    Argument,
    Command,
    place,
    switch,
    text,
)
from console.frontends.cli.commands.shared import JSON, SITE

SHELLS = {
    "bash": "eval \"$(omni-console completion bash)\" in ~/.bashrc",
    "zsh": "omni-console completion zsh >~/.zfunc/_omni-console, with ~/.zfunc in fpath",
    "fish": "omni-console completion fish >~/.config/fish/completions/omni-console.fish",
}  # fmt: skip
"""How each shell is given its script."""

COMMANDS = (
    Command(
        "init",
        "find the model servers of this machine and write the site file for one of them",
        "site.init:init",
        (
            JSON,
            text(
                "--pick",
                "N|URL",
                "which one is the baseline: its number, URL, pid, container or unit",
            ),
            text(
                "--reference",
                "RATE",
                "its known speed in tok/s; `measure` (default: three answers) or `none`",
            ),
            text(
                "--output",
                "FILE",
                "where to write (default: $OMNI_SITE, else ~/.config/omni-console/site.yaml)",
            ),
            switch("--force", "replace a file that is there"),
            switch("--yes", "ask nothing"),
            switch("--list", "only show what serves; write nothing"),
        ),
        danger=DECIDES,
    ),
    Command(
        "adopt",
        "take over a running server as the site's baseline, without a restart",
        "site.adopt:adopt",
        (
            JSON,
            SITE,
            place(
                "what",
                "PID|CONTAINER|UNIT",
                "default: what answers at the baseline's URL",
                nargs="?",
                default="",
            ),
        ),
        danger=DECIDES,
    ),
    Command(
        "demo",
        "a whole run on real llama.cpp servers, no GPU",
        "demo:demo",
        (
            JSON,
            Argument(
                "--candidate",
                default=CANDIDATES[0],
                choices=CANDIDATES,
                help="default: fast (slow and garbled: NO-GO)",
            ),
            switch("--plain", "lines instead of screens"),
            switch("--stop", "end the demo and leave nothing behind"),
        ),
        danger=DECIDES,
        follows=True,
    ),
    Command(
        "playbooks",
        "the playbooks that can be run by name",
        "run:playbooks",
        (JSON, SITE),
        danger=LOOKS,
    ),
    Command(
        "lint",
        "faults in playbooks, sites, Dockerfiles, compose files and scripts",
        "check:lint",
        (
            JSON,
            SITE,
            place("paths", "PATH", "files, or directories of them", nargs="*"),
            switch("--sarif", "SARIF 2.1.0 on stdout"),
            switch("--rules", "every rule: what, why, how to fix it"),
        ),
        danger=LOOKS,
    ),
    Command(
        "schema",
        "the JSON Schema of a playbook, a site or a fleet file",
        "check:schema",
        (
            JSON,
            place(
                "what",
                "WHAT",
                "playbook (default), site or fleet",
                nargs="?",
                default="playbook",
                choices=("playbook", "site", "fleet"),
            ),
            switch("--markdown", "the format as Markdown (docs/reference/format.md)"),
        ),
        danger=LOOKS,
    ),
    Command("keys", "every key of the screens, as a table", "console:keys", (JSON,), danger=LOOKS),
    Command(
        "completion",
        "a script for the Tab key: commands, options, runs, playbooks, inputs, lessons",
        danger=LOOKS,
        listed="the script with which a shell completes commands, runs and playbooks",
        epilog="\n".join(["To install it:", *(f"  {hint}" for hint in SHELLS.values())]),
        parts=(
            *(
                Command(
                    shell,
                    f"the script for {shell}",
                    "shell.completion:script",
                    values={"shell": shell},
                )
                for shell in SHELLS
            ),
            Command(
                "values",
                f"{INTERNAL} what may stand there",
                "shell.values:values",
                (Argument("kind"), Argument("words", nargs="...")),
                hidden=True,
            ),
        ),
        parts_are="SHELL",
    ),
    Command(
        "man", "the manual page: omni-console man | man -l -", "shell.manual:manual", danger=LOOKS
    ),
)
