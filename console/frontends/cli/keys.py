"""`keys`: every key of the screens, as Markdown; docs/keys.md is this very output."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict

from console.common.errors import Exit
from console.render.keymap import ACTIONS, of_scope

TITLES = {
    "app": "Everywhere",
    "run": "The run on show",
    "log": "The log pane, when it has the focus",
    "runs": "The list of runs",
    "plan": "A playbook's plan",
    "preflight": "Preflight",
    "lessons": "The lessons",
}


def keys(args: Namespace) -> int:
    """Print the registry."""
    if args.json:
        print(json.dumps({"actions": [asdict(action) for action in ACTIONS]}))
    else:
        print(markdown(), end="")
    return int(Exit.OK)


def markdown() -> str:
    """One table a scope. `!`: stops something; nothing else does."""
    lines = [
        "# Keys",
        "",
        "Written by `omni-console keys`; the same registry makes the footer, the help screen and "
        "the command palette. A key marked **!** stops something. Enter opens, and never approves "
        "or skips; `q` and Esc never stop anything.",
    ]
    for scope, title in TITLES.items():
        lines += ["", f"## {title}", "", "| key | | what it does |", "|---|---|---|"]
        for action in of_scope(scope):
            mark = " **!**" if action.dangerous else ""
            shown = action.shown.replace("|", "\\|")
            lines.append(f"| `{shown}` | {action.title}{mark} | {action.help} |")
    return "\n".join(lines) + "\n"
