"""A site file for a server that was found: its text, and what had to be left out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from console.common import redact
from console.common.options.engines import weights
from console.common.options.variables import OF_ENGINES
from console.common.text import one_line
from console.host.children import kept
from console.host.sample import Card
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import Server

WIDTH = 40
VALUE = "VALUE"
"""What stands in a comment for a value that was left out."""
_PLAIN = re.compile(r"-{0,2}[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""What a reader of YAML may take for something else than text."""


@dataclass(frozen=True, slots=True)
class Draft:
    """`left_out` names, in clean words, the secrets that the text lacks."""

    text: str
    left_out: tuple[str, ...] = ()


QUESTION, ANSWER, ANSWER_TOKENS = (
    "Name the capital of France.",
    "Paris",
    32,
)
"""What nearly every model knows. Nonsense that looks like language, as a wrong setting of an engine
makes it, is told from an answer by its sense alone."""


@dataclass(frozen=True, slots=True)
class DraftDetails:
    """What a draft needs beside the server: the site's name, the known rate with where it comes
    from, the container engine if it is not at its usual place, the cards, containers to protect,
    the day, and how an editor finds the schema."""

    name: str
    schema: str
    day: str
    tok_s: float | None = None
    rate_from: str = ""
    engine_host: str = ""
    cards: Sequence[Card] = ()
    protected: Sequence[str] = ()
    knows: bool = False
    """The server answers QUESTION with ANSWER."""


def draft(server: Server, details: DraftDetails) -> Draft:
    """The text of a site file whose baseline is `server`."""
    left: list[str] = []
    body = [*_runs(server, left), *_answers(server, details), *_models(server)]
    lines = [
        f"# yaml-language-server: $schema={details.schema}",
        f"# Written by `omni-console init` on {details.day} for {server.words}.",
        "# `omni-console schema site` prints every key; `omni-console lint FILE` checks this file.",
        "schema: omni.site/v1",
        *_value(f"name: {scalar(details.name)}", "names the records of measured restore times"),
        "baseline:",
        *(f"  {line}" for line in body),
        *_engine(details.engine_host),
        *_cards(details.cards),
        *_protected(details.protected),
    ]
    return Draft("\n".join(lines) + "\n", tuple(left))


def scalar(text: str) -> str:
    """A text as YAML that reads as that very text, in quotes where it needs them."""
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def without_secrets(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command without those that are secret, and the flags that they belong to."""
    kept_words, left = list[str](), list[str]()
    for word, missing, _ in _parted(argv):
        if missing:
            left += [missing] if missing not in left else []
        else:
            kept_words.append(word)
    return kept_words, left


def missing_values(names: Sequence[str]) -> str:
    """`the values of --api-key and HF_TOKEN are missing`."""
    if len(names) == 1:
        return f"the value of {names[0]} is missing"
    return f"the values of {', '.join(names[:-1])} and {names[-1]} are missing"


def where_to_write(names: Sequence[str], path: object) -> str:
    """Where the operator writes what was left out, and what comes after that."""
    where = []
    if any(not _is_variable(name) for name in names):
        where.append("into process.argv, where the line `left out` stands (or that of the command)")
    if any(_is_variable(name) for name in names):
        where.append("variables into process.env")
    return (
        f"write them into {one_line(str(path), 200)}: {'; '.join(where)}; then omni-console adopt "
        f"--site {one_line(str(path), 200)}. init cannot do it: it never writes a secret"
    )


def _is_variable(name: str) -> bool:
    return name.isidentifier()


def _parted(argv: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each word of a command that is kept; for each that is secret, with the flag in front of it,
    what it belongs to and how it is written."""
    shown = redact.argv(argv)
    for at, (word, visible) in enumerate(zip(argv, shown, strict=True)):
        follows = at + 1 < len(argv) and shown[at + 1] != argv[at + 1]
        if word == visible:
            behind_flag = word.startswith("-") and follows and not argv[at + 1].startswith("-")
            if not behind_flag:
                yield word, "", ""
            continue
        flag = visible.partition("=")[0].partition(redact.HIDDEN)[0]
        if flag.startswith("-"):
            name = one_line(flag, 60)
            form = f"{name}={VALUE}" if visible.startswith(f"{flag}=") else f"{name}{VALUE}"
            yield "", name, f"- {form}"
            continue
        first = at
        while first > 0 and shown[first - 1] != argv[first - 1] and not argv[first].startswith("-"):
            first -= 1  # of a flag with several values the second and later ones
        flag = argv[first - 1] if first > 0 else ""
        if flag.startswith("-") and flag == shown[first - 1]:
            name = one_line(flag, 60)
            yield "", name, f"- {name}, then - {VALUE}" if first == at else f"- {VALUE}"
        else:
            yield "", "a word with a password in it", f"- {VALUE}"


def variables(running: Running) -> tuple[dict[str, str], list[str]]:
    """The variables that a process was started with and a rollback would not give it, without
    secrets; and the names of those."""
    environ = dict(running.environ or {})
    given = kept()
    public_variables, left = dict[str, str](), list[str]()
    inside = "VIRTUAL_ENV" in environ or "CONDA_PREFIX" in environ
    for name, value in sorted(environ.items()):
        meant = name.startswith(OF_ENGINES) or (name == "PATH" and inside)
        if not meant or given.get(name) == value or not re.fullmatch(r"[A-Za-z_]\w*", name, re.A):
            continue
        if redact.is_secret(name, value):
            left.append(name)
        elif not any("\ud800" <= letter <= "\udfff" for letter in value):
            public_variables[name] = value
    return public_variables, left


def _runs(server: Server, left: list[str]) -> Iterator[str]:
    """What starts and stops it: a container's name, a compose service, a unit, a command line."""
    if server.unit is not None:
        user = ", user: true" if server.unit.user else ""
        yield "# Stopped and started by systemctl, so its Restart= does not get in the way."
        yield f"unit: {{name: {scalar(server.unit.name)}{user}}}"
        return
    if server.box is not None:
        made = server.box.compose
        if made is None:
            yield from _value(f"container: {scalar(server.box.name)}", "started, never created")
            return
        yield "# Its container is started by its id; compose makes it anew only where it is gone."
        yield "compose:"
        yield f"  file: {scalar(made.file)}"
        yield f"  service: {scalar(made.service)}"
        yield f"  project: {scalar(made.project)}"
        return
    running = server.running
    assert running is not None
    env, names = variables(running)
    left += [*without_secrets(running.argv)[1], *names]
    yield "# A rollback starts it with exactly these words; no shell reads them."
    yield "process:"
    yield "  argv:"
    yield f"    - {scalar(running.program)}"
    for word, missing, form in list(_parted(running.argv))[1:]:
        secret = f"# left out, because it is secret: the value of {missing}; write here: {form}"
        yield f"    {secret if missing else f'- {scalar(word)}'}"
    yield f"  cwd: {scalar(running.cwd)}"
    if env:
        yield "  env:"
        yield from (f"    {name}: {scalar(value)}" for name, value in env.items())
    yield from (f"  # left out of env, because it is secret: {name}" for name in names)


def _answers(server: Server, details: DraftDetails) -> Iterator[str]:
    """Where it answers, and what proves that it does."""
    yield f"url: {server.url}"
    yield from _value(
        f"ready: {{http: {scalar(server.ready or server.engine.ready)}, timeout: 20m}}",
        "the path that says so; how long loading may take",
    )
    completion_lines = (
        [f"model: {scalar(server.model)}"] if server.engine.names_model and server.model else []
    )
    if details.knows:
        yield "# What the proof asks, and what an answer that makes sense has in it."
        completion_lines += [f"prompt: {scalar(QUESTION)}", f"max_tokens: {ANSWER_TOKENS}",
                  f"expect: {scalar(ANSWER)}"]  # fmt: skip
        yield "completion:"
        yield from (f"  {line}" for line in completion_lines)
    elif completion_lines:
        yield from _value(f"completion: {{{completion_lines[0]}}}", "the proof asks for it")
    if details.tok_s is None:
        yield "# reference: {tok_s: 10.9}   the known speed: without it nobody notices a slow one"
    else:
        yield from _value(
            f"reference: {{tok_s: {details.tok_s:.4g}, tolerance: 0.10}}",
            f"{details.rate_from}; below 90 % of it a restored baseline is DEGRADED",
        )
    if server.running is not None and server.box is None:
        yield from _value("grace: 10s", "from SIGTERM to SIGKILL")


def _models(server: Server) -> Iterator[str]:
    model_paths: Iterable[str] = server.box.models if server.box is not None else ()
    if server.box is None and server.running is not None:
        model_paths = weights(server.running.argv, server.running.cwd, server.running.environ)
    if listed := [scalar(path) for path in model_paths]:
        yield "models:   # have to be there, or no run starts"
        yield from (f"  - {path}" for path in listed)


def _engine(host: str) -> Iterator[str]:
    if host:
        yield "# the container engine; a rollback in another shell finds it, too"
        yield f"engine: {{host: {scalar(host)}}}"


def _cards(cards: Sequence[Card]) -> Iterator[str]:
    if not cards:
        return
    yield "gpus:   # after a stop their memory is waited for; a --tensor-split counts in this order"
    for card in cards:
        yield f"  - {{uuid: {scalar(card.uuid)}, name: {scalar(card.name)}}}"


def _protected(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield "protected:   # other containers that serve models: the console never stops them"
        yield from (f"  - {scalar(name)}" for name in names)


def _value(text: str, words: str) -> list[str]:
    """A line with what it means behind it, or above it where it is long."""
    if len(text) > WIDTH:
        return [f"# {words}", text]
    return [f"{text:<{WIDTH}}# {words}"]


def site_name(host: str) -> str:
    """A machine's name as the name of a site."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", host).lstrip("_.-")
    return plain or "workstation"
