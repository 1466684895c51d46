"""A compose file → a unit: what each service runs, with what, and how its health is asked."""

from __future__ import annotations

from collections.abc import Iterator

from console.checks.lint import shell
from console.checks.lint.commands import Scene, add_argv, add_script
from console.checks.lint.dockerfile import expanded
from console.checks.lint.finding import Place
from console.checks.lint.unit import Container, Health, Image, Source, Unit, Variable, Where, Word
from console.checks.lint.yaml_tree import Node, Tree


def looks_like_one(root: Node) -> bool:
    """A mapping with `services:`, each of which is a mapping with a compose key."""
    services = root.get("services")
    if services is None or services.fields is None or root.get("schema") is not None:
        return False
    known = {"image", "build", "command", "extends", "environment", "deploy", "volumes", "ports"}
    return any(known & set(one.fields or {}) for _, one in services.pairs())


def unit_of(source: Source, tree: Tree) -> Unit:
    unit = Unit(source, comments=list(tree.comments), spans=list(tree.spans))
    services = tree.root.get("services")
    for name, service in services.pairs() if services is not None else ():
        if service.fields is not None:
            _service(unit, name, _extended(services, service), service.place)
    return unit


def _extended(services: Node | None, service: Node) -> Node:
    """With what `extends` brings from a service of the same file."""
    base = service.said("extends", "service") or service.said("extends")
    other = services.get(base) if services is not None and base else None
    if other is None or service.get("extends", "file") is not None or other is service:
        return service
    fields = {**(other.fields or {}), **(service.fields or {})}
    return Node(service.place, fields=fields, keys={**other.keys, **service.keys})


def _service(unit: Unit, name: str, service: Node, place: Place) -> None:
    image = expanded(service.said("image"), {})
    variables = tuple(_environment(service.get("environment"), name))
    unit.variables += variables
    built = _dockerfile(service.get("build"))
    if (ref := service.get("image")) is not None:
        made = service.get("build") is not None
        unit.images.append(Image(image, ref.place, name, made=made, by="compose"))
    runtime = service.get("runtime")
    volumes = service.get("volumes")
    unit.containers.append(
        Container(
            name, place, image, builds=bool(built), dockerfile=built,
            runtime=service.said("runtime"), runtime_place=runtime.place if runtime else None,
            gpus=_gpus(service), env=variables, mounts=_mounts(volumes),
        )
    )  # fmt: skip
    words = (*_argv(service.get("entrypoint")), *_argv(service.get("command")))
    add_argv(unit, words, Scene(Where.START, name, image))
    _health(unit, service.get("healthcheck", "test"), name, image, built)


def _argv(node: Node | None) -> tuple[Word, ...]:
    """A list as it is; a text split as compose splits it, which has no shell."""
    if node is None:
        return ()
    if node.text is None:
        return node.words()
    read = shell.parse(node.word.inner)
    return tuple(word for one in read.commands[:1] for word in one.words)


def _health(unit: Unit, test: Node | None, name: str, image: str, built: str) -> None:
    if test is None:
        return
    before = len(unit.commands)
    scene = Scene(Where.HEALTH, name, image)
    words = test.words()
    shell = test.text is not None or (bool(words) and words[0].text == "CMD-SHELL")
    if test.text is not None:
        add_script(unit, test.word.inner, scene)
    elif words and words[0].text == "CMD":
        add_argv(unit, words[1:], scene)
    elif shell and len(words) > 1:
        add_script(unit, words[1].inner, scene)
    else:
        return
    programs = tuple(command.words[0] for command in unit.commands[before:])
    unit.healths.append(Health(test.place, image, shell, programs, name, built))


def _environment(node: Node | None, scope: str) -> Iterator[Variable]:
    if node is None:
        return
    for name, value in node.pairs():
        yield Variable(name, value.text or "", value.place, scope)
    for word in node.words():
        name, sign, text = word.text.partition("=")
        if sign:
            yield Variable(name, text, word.place, scope)


def _dockerfile(build: Node | None) -> str:
    """The path of the Dockerfile, "" where nothing is built, "?" where it is written inline."""
    if build is None:
        return ""
    if build.text is not None:
        return f"{build.text or '.'}/Dockerfile"
    if build.get("dockerfile_inline") is not None:
        return "?"
    context = build.said("context") or "."
    return f"{context}/{build.said('dockerfile') or 'Dockerfile'}"


def _gpus(service: Node) -> Place | None:
    """Where a service asks for a GPU."""
    if (gpus := service.get("gpus")) is not None:
        return gpus.place
    devices = service.get("deploy", "resources", "reservations", "devices")
    for one in devices.each() if devices is not None else ():
        capabilities = [word.text for word in (one.get("capabilities") or one).words()]
        if one.said("driver") == "nvidia" or "gpu" in capabilities:
            return one.place
    plain = service.get("devices")
    for one in plain.each() if plain is not None else ():
        if "/dev/nvidia" in (one.text or "") or "nvidia.com/gpu" in (one.text or ""):
            return one.place
    return None


def _mounts(volumes: Node | None) -> tuple[Word, ...]:
    """Short forms as they are, long ones as source:target."""
    found: list[Word] = []
    for one in volumes.each() if volumes is not None else ():
        if one.text is not None:
            found.append(one.word)
        elif (target := one.get("target")) is not None:
            word = target.word
            found.append(Word(f"{one.said('source')}:{word.text}", target.place, word.inner))
    return tuple(found)
