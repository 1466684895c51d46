"""A site file for a server that was found: its text, and what had to be left out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from console.common import redact
from console.common.text import one_line
from console.host.children import kept
from console.host.sample import Card
from console.runtime.discovery.engines import weights
from console.runtime.discovery.processes import Running
from console.runtime.discovery.servers import Server

WIDTH = 40
_PLAIN = re.compile(r"-{0,2}[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""What a reader of YAML may take for something else than text."""
_ENGINES = (
    "LLAMA_", "GGML_", "CUDA_", "NCCL_", "NVIDIA_", "VLLM_", "SGLANG_", "SGL_", "OLLAMA_", "HF_",
    "TRANSFORMERS_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "OMP_", "KMP_", "MKL_",
    "OPENBLAS_", "HIP_", "HSA_", "ROCR_", "GPU_", "LD_", "PYTHONPATH", "VIRTUAL_ENV",
    "CONDA_PREFIX",
)  # fmt: skip
"""How the names of variables begin that change what an engine does."""


@dataclass(frozen=True, slots=True)
class Draft:
    """`left_out` names, in clean words, the secrets that the text lacks."""

    text: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
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


def draft(server: Server, told: Told) -> Draft:
    """The text of a site file whose baseline is `server`."""
    left: list[str] = []
    body = [*_runs(server, left), *_answers(server, told), *_models(server)]
    lines = [
        f"# yaml-language-server: $schema={told.schema}",
        f"# Written by `omni-console init` on {told.day} for {server.words}.",
        "# `omni-console schema site` prints every key; `omni-console lint FILE` checks this file.",
        "schema: omni.site/v1",
        *_value(f"name: {scalar(told.name)}", "names the records of measured restore times"),
        "baseline:",
        *(f"  {line}" for line in body),
        *_engine(told.engine_host),
        *_cards(told.cards),
        *_protected(told.protected),
    ]
    return Draft("\n".join(lines) + "\n", tuple(left))


def scalar(text: str) -> str:
    """A text as YAML that reads as that very text, in quotes where it needs them."""
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def without_secrets(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command without those that are secret, and the flags that they belong to."""
    found, left = list[str](), list[str]()
    for word, shown in zip(argv, redact.argv(argv), strict=True):
        if word == shown:
            found.append(word)
            continue
        flag = word.partition("=")[0]
        if not flag.startswith("-") and found and found[-1].startswith("-"):
            flag = found.pop()
        left.append(one_line(flag, 60) if flag.startswith("-") else "a word with a password in it")
    return found, left


def variables(running: Running) -> tuple[dict[str, str], list[str]]:
    """The variables that a process was started with and a rollback would not give it, without
    secrets; and the names of those."""
    environ = dict(running.environ or {})
    given = kept()
    found, left = dict[str, str](), list[str]()
    inside = "VIRTUAL_ENV" in environ or "CONDA_PREFIX" in environ
    for name, value in sorted(environ.items()):
        meant = name.startswith(_ENGINES) or (name == "PATH" and inside)
        if not meant or given.get(name) == value or not re.fullmatch(r"[A-Za-z_]\w*", name, re.A):
            continue
        if redact.is_secret(name, value):
            left.append(name)
        elif not any("\ud800" <= letter <= "\udfff" for letter in value):
            found[name] = value
    return found, left


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
    argv, hidden = without_secrets(running.argv)
    env, names = variables(running)
    left += [*hidden, *names]
    yield "# A rollback starts it with exactly these words; no shell reads them."
    yield "process:"
    yield "  argv:"
    yield from (f"    - {scalar(word)}" for word in (running.program, *argv[1:]))
    yield from (f"    # left out, because it is secret: the value of {one}" for one in hidden)
    yield f"  cwd: {scalar(running.cwd)}"
    if env:
        yield "  env:"
        yield from (f"    {name}: {scalar(value)}" for name, value in env.items())
    yield from (f"  # left out of env, because it is secret: {one}" for one in names)


def _answers(server: Server, told: Told) -> Iterator[str]:
    """Where it answers, and what proves that it does."""
    yield f"url: {server.url}"
    yield from _value(
        f"ready: {{http: {scalar(server.ready or server.engine.ready)}, timeout: 20m}}",
        "the path that says so; how long loading may take",
    )
    if server.engine.names_model and server.model:
        yield from _value(f"completion: {{model: {scalar(server.model)}}}", "the proof asks for it")
    if told.tok_s is None:
        yield "# reference: {tok_s: 10.9}   the known speed: without it nobody notices a slow one"
    else:
        yield from _value(
            f"reference: {{tok_s: {told.tok_s:.4g}, tolerance: 0.10}}",
            f"{told.rate_from}; below 90 % of it a restored baseline is DEGRADED",
        )
    if server.running is not None and server.box is None:
        yield from _value("grace: 10s", "from SIGTERM to SIGKILL")


def _models(server: Server) -> Iterator[str]:
    found: Iterable[str] = server.box.models if server.box is not None else ()
    if server.box is None and server.running is not None:
        found = weights(server.running.argv, server.running.cwd)
    if listed := [scalar(path) for path in found]:
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
    for one in cards:
        yield f"  - {{uuid: {scalar(one.uuid)}, name: {scalar(one.name)}}}"


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
