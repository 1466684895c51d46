"""Rules on image names, and on health checks whose program or shell the image lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.checks.lint import dockerfile, files, vocabulary
from console.checks.lint.rule import ERROR, INFO, WARNING, Facts, rule
from console.checks.lint.unit import Health, Hit, Kind, Source, Unit, Where

_GENERIC = ("nightly", "final", "dev", "test", "new", "main", "master", "edge", "wip", "current")
_ONE_PLATFORM = {"mem0/mem0-api-server": "linux/arm64"}

_WITHOUT = re.compile(
    r"qdrant/qdrant|arizephoenix/phoenix|letta/letta|postgres|redis|valkey/valkey|mysql|mariadb"
    r"|mongo|memcached|ollama/ollama|debian|ubuntu|alpine|busybox|scratch|traefik|caddy"
    r"|prom/[\w-]+|nvidia/cuda|gcr\.io/distroless/.*|cgr\.dev/chainguard/.*|keycloak/keycloak"
    r"|quay\.io/keycloak/keycloak|neo4j|rabbitmq"
)
_WITH = re.compile(
    r"nginx|curlimages/curl|buildpack-deps|php|wordpress|nextcloud|elasticsearch|kibana"
    r"|docker\.elastic\.co/.*|opensearchproject/.*|grafana/grafana|jenkins/jenkins|gitlab/.*"
    r"|ghcr\.io/ggml-org/llama\.cpp|vllm/vllm-openai|lmsysorg/sglang"
)
_NO_WGET = re.compile(
    r"qdrant/qdrant|arizephoenix/phoenix|debian|ubuntu|nvidia/cuda|scratch|gcr\.io/distroless/.*"
)
_FULL = ("python", "node", "golang", "ruby", "rust", "openjdk", "perl", "gcc")
"""Official images with curl in their plain tags, but not in slim and alpine tags."""
_DISTROLESS = re.compile(
    r"gcr\.io/distroless/.*|cgr\.dev/chainguard/(?!wolfi-base).*|arizephoenix/phoenix|scratch"
)
_FOLDERS = frozenset({"/", "/usr", "/usr/", "/usr/bin", "/usr/bin/", "/usr/local", "/usr/local/",
                      "/usr/local/bin", "/usr/local/bin/", "/bin", "/bin/"})  # fmt: skip
"""Directories that may include curl when they are copied from another stage."""
_LIKE_DEBUG = re.compile(r"debug|-dev$|busybox|shell")


def split(ref: str) -> tuple[str, str]:
    """(repository, tag) of a reference; the tag is "" if there is none."""
    name = ref.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "")


@rule(
    "generic-image-tag", WARNING, "F-011",
    title="An image of your own under a tag that says nothing",
    why="`:nightly` and `:final` were builds of an earlier phase, without the engine; a tag has to "
    "tell which build is meant. No tag, which is `:latest`, tells nothing either.",
    fix="a tag by phase or version, like :phase2",
)  # fmt: skip
def generic(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for image in unit.images:
        own = image.made or image.by == "playbook"
        if not own or not image.ref or "$" in image.ref or "@" in image.ref:
            continue
        tag = split(image.ref)[1]
        if tag in _GENERIC:
            yield Hit(image.place, image.ref)
        elif tag in ("", "latest"):
            grave = None if image.by == "playbook" else INFO
            what = image.ref if tag else f"{image.ref} has no tag, and is :latest"
            yield Hit(image.place, what, grave)


@rule(
    "single-platform-image", ERROR, "F-006",
    title="An image that was not published for linux/amd64",
    why="Only another platform was published: no matching manifest. An issue that was closed as "
    "resolved did not change it.",
    fix="another image; a playbook can prove it with `check: {image: …, platform: linux/amd64}`",
)  # fmt: skip
def single_platform(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for image in unit.images:
        only = _ONE_PLATFORM.get(split(image.ref)[0].removeprefix("docker.io/"))
        if only and not image.made:
            yield Hit(image.place, f"{image.ref} was published for {only} alone")


def has(image: str, program: str) -> bool | None:
    """Whether an image is known to have, or to lack, curl or wget."""
    name, tag = split(image)
    name = name.removeprefix("docker.io/").removeprefix("library/")
    if program == "wget":
        return None if "debug" in tag or not _NO_WGET.fullmatch(name) else False
    if name in _FULL:
        return not re.search(r"slim|alpine", tag)
    if _WITH.fullmatch(name):
        return True
    return False if _WITHOUT.fullmatch(name) else None


@rule(
    "healthcheck-curl", ERROR, "F-021",
    title="A health check by curl or wget in an image without it",
    why="Minimal images have neither: the container serves and is called unhealthy for ever.",
    fix="what the image has: python -c \"import urllib.request; …\", wget -q --spider on Alpine, "
    "the program's own check",
)  # fmt: skip
def curl(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for health in unit.healths:
        for word in health.programs:
            name = word.text.rsplit("/", 1)[-1]
            if name not in ("curl", "wget"):
                continue
            there, image = _has(unit, health, name)
            if there is False:
                yield Hit(word.place, f"{name}, and {image} does not have it")
            elif there is None and name == "curl":
                words = f"curl; whether {image or 'the image'} has it is not known"
                yield Hit(word.place, words, INFO)


def _has(unit: Unit, health: Health, program: str) -> tuple[bool | None, str]:
    """(whether the program is there, the image that says so)."""
    if unit.source.kind is Kind.DOCKERFILE:
        return _stage_has(unit, health.scope, program), health.image
    if program in vocabulary.installed(unit, health.scope):
        return True, health.image  # by the service's own command
    if not health.built:
        return has(health.image, program), health.image
    built = _dockerfile(unit, health.built)
    if built is None or not built.stages:
        return None, health.image or health.scope
    last = built.stages[-1]
    return _stage_has(built, last.name, program), health.image or last.base


def _stage_has(unit: Unit, scope: str, program: str) -> bool | None:
    stage = unit.stage(scope)
    if stage is None:
        return None
    scopes = unit.scopes(scope)
    copied = [word for copy in unit.copies if copy.scope in scopes for word in copy.words]
    if program in vocabulary.installed(unit, scope) or any(_is(program, word) for word in copied):
        return True
    if any(word.startswith("--from") for word in copied) and _FOLDERS & set(copied):
        return None
    builds = (command for command in unit.within(scope) if command.where is Where.BUILD)
    if any(program in word.text for build in builds for word in build.words):
        return None
    return has(stage.base, program)


def _is(program: str, path: str) -> bool:
    """Whether a copied path is the program: `/usr/bin/curl`, `curl-amd64`."""
    name = path.rsplit("/", 1)[-1]
    return name == program or name.startswith(f"{program}-")


def _dockerfile(unit: Unit, path: str) -> Unit | None:
    """The Dockerfile next to the file, from which a service is built."""
    if path == "?" or "$" in path:
        return None
    file = unit.source.path.parent / path
    try:
        text = files.read(file)
    except files.Unreadable:
        return None
    return dockerfile.unit_of(Source(file, text, Kind.DOCKERFILE))


def is_distroless(image: str) -> bool:
    name, tag = split(image)
    name = name.removeprefix("docker.io/")
    return bool(_DISTROLESS.fullmatch(name)) and not _LIKE_DEBUG.search(tag)


@rule(
    "cmd-shell-on-distroless", ERROR, "F-021",
    title="A command that needs a shell in an image without one",
    why="CMD-SHELL, and CMD or ENTRYPOINT as plain text, are run by /bin/sh: stat /bin/sh: no such "
    "file or directory.",
    fix='as a list: ["CMD", "python", "-c", "…"]',
)  # fmt: skip
def shell_form(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for health in unit.healths:
        if health.shell and is_distroless(health.image):
            yield Hit(health.place, f"a health check in a shell, and {health.image} has none")
    for stage in unit.stages:
        if is_distroless(stage.base):
            for place in stage.shell_form:
                yield Hit(place, f"a command in a shell, and {stage.base} has none")
