"""`lessons --export`: writes what agents and newcomers have to know into a file."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from console.common.errors import UsageError
from console.common.files import open_regular, write_atomically
from console.common.output import EXIT_MEANING
from console.common.text import one_line
from console.config.lessons.registry import Lesson
from console.frontends.cli.commands import shown
from console.frontends.cli.commands.record import DECIDES, LOADS, LOOKS, RESCUES
from console.render.brief import AVOID, WORKS, advices
from console.render.report.markdown import code, prose, table

MARK = "<!-- omni-console lessons --export wrote this; sha256 "
_MARK_END = " -->"
MAX_BYTES = 16 << 20

SENTENCES = {
    LOOKS: "These only look, and change nothing, except that `lessons --draft`, `lessons --export` "
    "and `report --to` write a file, `lessons --due --run` runs the commands of the lessons, and "
    "`clean --yes` deletes what it names:",
    LOADS: "These change nothing either, but take time or load the machine: `attach` follows a run "
    "until it ends, `check` may start a container for a moment, `bench` sends requests to a server "
    "that others may be using, and `notify --test` calls the operator:",
    RESCUES: "In an emergency only. It ends what a trial started and brings the baseline back; it "
    "asks nothing, deletes nothing, and does no harm when it runs twice:",
    DECIDES: "These start, stop or decide something. Use one only if the operator asked you for "
    "it, and never approve in the operator's place:",
}
"""What is said of the commands of each `danger`."""


def guide(lessons: Sequence[Lesson]) -> str:
    """The document, with its mark in the first line."""
    body = markdown(lessons, socket.gethostname())
    return f"{MARK}{_digest(body)}{_MARK_END}\n{body}"


def export(lessons: Sequence[Lesson], name: str, *, force: bool) -> Path | None:
    """Write the document to a file and return its path; to stdout for `-`.

    A link is followed, so that it stays one. Raises UsageError for a file that is not an unchanged
    earlier export, unless `force`, and for one that cannot be written.
    """
    text = guide(lessons)
    if name == "-":
        sys.stdout.write(text)
        return None
    path = Path(os.path.realpath(os.path.expanduser(name)))
    try:
        mode = _checked(path, force)
        write_atomically(path, text, mode)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"nothing was written: {one_line(str(path))}", why) from error
    return path


def _checked(path: Path, force: bool) -> int:
    """The mode to write with. Raises UsageError if the file has to stay, OSError if it cannot be
    read."""
    if not path.exists():
        return 0o644
    with open_regular(path) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        first, body = file.readline(200).decode("utf-8", "replace"), file.read(MAX_BYTES)
    made = first.startswith(MARK)
    if force or (made and first == f"{MARK}{_digest(body)}{_MARK_END}\n"):
        return mode
    why = "it was changed after it was exported" if made else "omni-console did not write it"
    raise UsageError(
        f"nothing was written: {one_line(str(path))} exists", why,
        "--force replaces it; or export to another file and refer to that",
    )  # fmt: skip


def _digest(body: str | bytes) -> str:
    data = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body
    return hashlib.sha256(data).hexdigest()


def markdown(lessons: Sequence[Lesson], host: str) -> str:
    """What not to do, what works, and how to reach the console of this machine."""
    every = advices(lessons)
    avoided = [
        (advice.id, prose(advice.what), prose(advice.why), prose(advice.do), advice.status)
        for advice in every if advice.avoid
    ]  # fmt: skip
    works = [
        (advice.id, prose(advice.what), prose(advice.do)) for advice in every if not advice.avoid
    ]
    questions = [
        (prose(one_line(question.question, 600)), prose(one_line(question.answer, 600)), lesson.id)
        for lesson in lessons for question in lesson.model.questions
    ]  # fmt: skip
    return "\n".join([
        "# Before you change anything on this machine", "",
        f"Earlier trials taught these {len(lessons)} lessons. `omni-console lessons ID` shows one "
        "with its cause, figures and evidence; `omni-console lessons WORD` searches them.", "",
        *_section(AVOID, table(("lesson", "what not to do", "why", "instead", "status"), avoided)),
        *_section("Before you suggest it", table(("question", "answer", "lesson"), questions)),
        *_section(WORKS, table(("lesson", "what", "what to take from it"), works)),
        *_ssh(host),
    ])  # fmt: skip


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines] if lines else []


def _ssh(host: str) -> list[str]:
    out = [
        "## How to reach this machine's console by one-shot ssh", "",
        f"The machine calls itself {code(host)}. Every command works without a terminal:", "",
        "```", "ssh HOST omni-console show --json", "```", "",
        "With `--json` a command prints one JSON object on stdout and its progress on stderr. "
        "Give ssh a `-o ConnectTimeout=10`, and do not retry in a loop. If the shell does not find "
        "`omni-console`, its own `doctor` prints the line that mends that.", "",
    ]  # fmt: skip
    for danger, sentence in SENTENCES.items():
        rows = [
            (code(command.name), prose(command.text))
            for command in shown() if command.danger == danger
        ]  # fmt: skip
        out += [sentence, "", *table(("command", "what it does"), rows)]
    codes = [(str(exit_code), prose(words)) for exit_code, words in EXIT_MEANING.items()]
    return [*out, "### Exit codes", "", *table(("code", "meaning"), codes)]
