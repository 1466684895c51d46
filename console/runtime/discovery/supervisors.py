"""Who keeps a model server up, apart from systemd and container engines: whose child it is.

A supervisor starts its child again when a run has stopped it, beside an exclusive candidate. No
list of them is complete, so of any other parent that stays it is said that it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from console.common.argv import quoted
from console.common.options.engines import OTHER, engine_of
from console.host import process
from console.runtime.discovery.processes import argv_of

KNOWN = frozenset({
    "supervisord", "circusd", "runsv", "s6-supervise", "supervise", "perpd", "immortal", "dinit",
    "god", "bluepill", "monit", "eye", "daemon", "forever", "nodemon", "watchexec", "watchmedo",
    "entr", "reflex", "foreman", "honcho", "goreman", "hivemind", "overmind", "process-compose",
    "mprocs", "llama-swap", "llama_swap", "llamactl", "paddler", "gpustack", "xinference",
    "xinference-local", "xinference-worker", "raylet", "local-ai", "lemonade-server", "ollama",
    "lm-studio", "lms", "nomad", "consul-template", "pueued", "finit", "launchd", "start_server",
    "respawn", "keepalive", "shoreman", "ray",
})  # fmt: skip
"""Programs that start their children again, by the name of their file."""
_TITLES = ((re.compile(r"PM2 v?[\d.]+: God Daemon"), "pm2"),)
"""Command lines that a supervisor has given itself, and its name."""
_INTERPRETER = re.compile(r"(python|pypy|node|ruby|perl|java|bun|deno)[\d.]*")
_SHELL = re.compile(r"-?(ba|da|z|fi|k|c|tc|a)?sh")
_LOGIN = frozenset({
    "init", "systemd", "sshd", "login", "tmux", "screen", "su", "sudo", "dumb-init", "tini",
    "docker-init", "catatonit", "cron", "crond", "atd", "xterm", "gnome-terminal-server", "konsole",
    "containerd-shim-runc-v2", "conmon", "mosh-server", "dropbear", "zellij", "tmux: server",
})  # fmt: skip
"""Where a search ends: these start programs for people, and start none again."""


@dataclass(frozen=True, slots=True)
class Parent:
    """An ancestor of a server that goes on when the server is stopped. `known`: a supervisor, or a
    model server of its own. `words` is clean."""

    pid: int
    words: str
    known: bool


def parent_of(pid: int) -> Parent | None:
    """The supervisor that keeps a process up; else its nearest ancestor that could be one, a script
    for example; None if people started it, or nobody is left."""
    nearest: Parent | None = None
    for ancestor in _above(pid):
        argv = argv_of(ancestor)
        name = _supervisor(argv)
        if not name and (engine := engine_of(argv)) not in (None, OTHER):
            name = engine.name if engine else ""
        if name:
            return Parent(ancestor, name, True)
        if nearest is None and argv:
            nearest = Parent(ancestor, quoted(argv, 60), False)
    return nearest


def _above(pid: int) -> Iterator[int]:
    """The ancestors of a process, nearest first, up to the shell, login or manager that a person
    started it by."""
    seen = {pid}
    stat = process.stat(pid)
    while stat is not None and stat.parent > 1 and stat.parent not in seen:
        seen.add(stat.parent)
        argv = argv_of(stat.parent)
        if not argv or _file(argv[0]) in _LOGIN or _is_interactive(argv):
            return
        yield stat.parent
        stat = process.stat(stat.parent)


def _supervisor(argv: tuple[str, ...]) -> str:
    """The name of a supervisor with this command line; "" if it is none that is known."""
    if not argv:
        return ""
    title = " ".join(argv)
    for pattern, name in _TITLES:
        if pattern.match(title):
            return name
    words = [_file(argv[0])]
    if _INTERPRETER.fullmatch(words[0]) or _SHELL.fullmatch(words[0]):
        words += _script(argv[1:])
    return next((word for word in words if word in KNOWN), "")


def _script(words: tuple[str, ...]) -> list[str]:
    """The file that an interpreter runs, and the package of its module."""
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words):
            module = words[at + 1]
            return [module, module.partition(".")[0], module.rpartition(".")[2]]
        if not word.startswith("-"):
            return [_file(word), PurePath(word).stem]
    return []


def _file(word: str) -> str:
    """The name of a program, as the first word of a command line has it; titles keep theirs."""
    return PurePath(word.partition(" ")[0].rstrip(":") or "/").name


def _is_interactive(argv: tuple[str, ...]) -> bool:
    """Whether a shell waits for a person: it has neither a script nor a command."""
    if not _SHELL.fullmatch(_file(argv[0])):
        return False
    rest = argv[1:]
    command = any(word.startswith("-") and not word.startswith("--") and "c" in word[1:]
                  for word in rest)  # fmt: skip
    return not command and all(word.startswith("-") for word in rest)
