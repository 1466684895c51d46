"""Faults of image names."""

from __future__ import annotations

from collections.abc import Iterator

from console.checks.lint.facts import Facts
from console.checks.lint.finding import Hit, Severity
from console.checks.lint.rule import rule
from console.checks.lint.unit import Image, Unit

_GENERIC = ("nightly", "final", "dev", "test", "new", "main", "master", "edge", "wip", "current")
_ONE_PLATFORM = {"mem0/mem0-api-server": "linux/arm64"}


def split(ref: str) -> tuple[str, str]:
    """(repository, tag) of a reference; the tag of one that has none is ""."""
    name = ref.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "")


@rule(
    "generic-image-tag", Severity.WARNING, "F-011",
    title="An image of your own under a tag that says nothing",
    why="`:nightly` and `:final` were builds of an earlier phase, without the engine; a tag has to "
    "tell which build is meant.",
    fix="a tag by phase or version, like :phase2",
)  # fmt: skip
def generic(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for image in unit.images:
        if (
            not image.ref
            or "$" in image.ref
            or "@" in image.ref
            or not (image.made or image.by == "playbook")
        ):
            continue
        tag = split(image.ref)[1]
        if tag in _GENERIC:
            yield Hit(image.place, image.ref)
        elif tag in ("", "latest"):
            grave = None if image.by == "playbook" else Severity.INFO
            yield Hit(image.place, _untagged(image, tag), grave)


def _untagged(image: Image, tag: str) -> str:
    return image.ref if tag else f"{image.ref} has no tag, and is :latest"


@rule(
    "single-platform-image", Severity.ERROR, "F-006",
    title="An image that is not there for linux/amd64",
    why="Only another platform was published: no matching manifest. An issue that was closed as "
    "resolved did not change it.",
    fix="another image; a playbook can prove it with `check: {image: …, platform: linux/amd64}`",
)  # fmt: skip
def single_platform(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for image in unit.images:
        only = _ONE_PLATFORM.get(split(image.ref)[0].removeprefix("docker.io/"))
        if only and not image.made:
            yield Hit(image.place, f"{image.ref} was published for {only} alone")
