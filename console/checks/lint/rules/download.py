"""Faults of downloads: lost, slow, or of what no engine here can load."""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.checks.lint import vocabulary
from console.checks.lint.commands import DETACHED
from console.checks.lint.facts import Facts
from console.checks.lint.finding import Hit, Place, Severity
from console.checks.lint.rule import rule
from console.checks.lint.unit import Kind, PlaybookStep, Unit
from console.checks.lint.yaml_tree import Node

_EXPERIMENTAL = re.compile(r"v\d(?:\.\d)?-exp\b|v3\.2\S*mxfp4|mxfp4\S*v3\.2", re.IGNORECASE)


@rule(
    "docker-exec-d-download", Severity.WARNING, "S-012",
    title="A download that docker exec -d sent away",
    why="Nothing waits for it and no restart policy brings it back: after a reboot the container "
    "ran and the download did not.",
    fix="a `download` step; or tmux in the container, or a service with a restart policy",
)  # fmt: skip
def detached(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if DETACHED in command.wrappers and vocabulary.is_download(command):
            yield Hit(command.place, f"docker exec -d, and {command.name} downloads in it")


@rule(
    "hf-transfer-many-shards", Severity.WARNING, "S-010",
    title="hf_transfer for a checkpoint of many files",
    why="It takes one file after another: 12 MB/s where 16 workers got 56 to 60.",
    fix="HF_HUB_DOWNLOAD_WORKERS=16 (or --max-workers 16) without it; it is for single large files",
)  # fmt: skip
def hf_transfer(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        words = vocabulary.hub_words(command)
        single = len(words) > 1 or any(
            "*" not in value for value, _ in command.options("--include")
        )
        if not words or single:
            continue
        on = list(unit.settings(command, "HF_HUB_ENABLE_HF_TRANSFER"))
        if on and vocabulary.truthy(on[0].value):
            yield Hit(command.place, f"all of {words[0].text} with HF_HUB_ENABLE_HF_TRANSFER=1")


@rule(
    "download-before-architecture", Severity.WARNING, "F-008",
    title="A GGUF is downloaded before its architecture is known",
    why="342 GB of deepseek3_2 came before llama.cpp said that it knows deepseek2 only. The header "
    "tells it from a few KiB.",
    fix="a `gguf` step before it, or `omni-console check gguf REPO`",
)  # fmt: skip
def unchecked(unit: Unit, facts: Facts) -> Iterator[Hit]:
    checked = False
    for step in unit.steps:
        checked = checked or step.kind == "gguf"
        if not checked and step.kind == "download" and _gguf(unit, step):
            yield Hit(step.place, f"step {step.id} downloads a GGUF that no `gguf` step looked at")
    for command in unit.commands:
        repo = vocabulary.hub_repo(command)
        if repo and _EXPERIMENTAL.search(repo):
            yield Hit(command.place, f"{repo} is of an experimental architecture")
        elif repo and _in_playbook(unit, command.place) and vocabulary.names_gguf(command.line):
            before = any(s.kind == "gguf" and s.place.line < command.place.line for s in unit.steps)
            if not before:
                yield Hit(command.place, f"{repo}, which no `gguf` step looked at")


def _in_playbook(unit: Unit, place: Place) -> bool:
    return unit.source.kind is Kind.PLAYBOOK and bool(place.line)


def _gguf(unit: Unit, step: PlaybookStep) -> bool:
    """What a download fetches, by itself or by the checkpoint step it is `of`."""
    body = step.data
    if not isinstance(body, Node):
        return False
    of = body.said("of")
    parts = [body, *(s.data for s in unit.steps if of and s.id == of and isinstance(s.data, Node))]
    return any(
        vocabulary.names_gguf(part.said(key)) for part in parts for key in ("repo", "include")
    )
