"""Scripts and argvs into a unit: each command, and the commands inside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from console.checks.lint import shell, wrapper
from console.checks.lint.finding import Place
from console.checks.lint.snippet import Snippet, spot
from console.checks.lint.unit import Broken, Command, Container, Image, Unit, Variable, Where, Word

DETACHED = "docker exec -d"
"""Stands among a command's wrappers: nobody waits for it, and no restart brings it back."""

DEEPEST = 6
"""Shells inside shells that are looked into."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where commands of a text run."""

    where: Where
    scope: str = ""
    image: str = ""
    folder: str = ""
    env: tuple[Variable, ...] = ()
    depth: int = 0
    looped: bool = False
    tolerated: bool = False
    wrappers: tuple[str, ...] = ()


def add_script(unit: Unit, snippet: Snippet, scene: Scene) -> str:
    """A shell text; returns the directory it ends in."""
    if scene.depth > DEEPEST:
        return scene.folder
    read = shell.parse(snippet)
    unit.cut = unit.cut or read.cut
    if read.wrong is not None and scene.depth == 0:
        _broken(unit, snippet, read.wrong)
    unit.variables += [replace(one, scope=scene.scope) for one in read.variables]
    if scene.depth == 0:
        unit.comments += read.comments
        unit.spans += read.spans
    script = unit.next_script()
    folder = scene.folder
    for simple in read.commands:
        if wrapper.name_of(simple.words[0]) == "cd" and len(simple.words) > 1:
            folder = joined(folder, simple.words[1].text)
        here = replace(
            scene, folder=folder, env=(*scene.env, *simple.env),
            looped=scene.looped or simple.looped, tolerated=scene.tolerated or simple.tolerated,
        )  # fmt: skip
        _add(unit, simple.words, here, script, simple.stdin)
    return folder


def _broken(unit: Unit, snippet: Snippet, place: Place) -> None:
    from console.checks.lint import bash  # it starts processes, which few texts need

    if said := bash.complaint(snippet.text):
        unit.broken.append(Broken(place, f"no shell can read this: {said}"))


def add_argv(unit: Unit, words: tuple[Word, ...], scene: Scene) -> None:
    """An argv that no shell reads."""
    if words and scene.depth <= DEEPEST:
        _add(unit, words, scene, unit.next_script(), None)


def joined(folder: str, step: str) -> str:
    """Where `cd step` leads; `..` and variables stay as they are."""
    return step if step.startswith("/") or not folder else f"{folder.rstrip('/')}/{step}"


def _add(
    unit: Unit, words: tuple[Word, ...], scene: Scene, script: int, stdin: Snippet | None
) -> None:
    words, wrappers = wrapper.stripped(words)
    if not words:
        return
    wrappers = (*scene.wrappers, *wrappers)
    command = Command(
        words, scene.where, scene.scope, script, scene.image, scene.env, wrappers,
        scene.looped, scene.tolerated, stdin, scene.folder,
    )  # fmt: skip
    unit.commands.append(command)
    deeper = replace(scene, depth=scene.depth + 1, wrappers=wrappers)
    text = wrapper.shell_text(words)
    if text is not None:
        add_script(unit, text.inner, deeper)
    elif command.name == "eval" and len(words) > 1:
        _again(unit, words[1:], deeper)
    elif command.name == "trap" and len(words) > 2 and not words[1].text.startswith("-"):
        add_script(unit, words[1].inner, deeper)
    elif command.name == "ssh":
        _again(unit, wrapper.remote_words(words), replace(deeper, where=Where.HOST, scope="ssh"))
    elif command.name in wrapper.SHELLS and stdin is not None:
        add_script(unit, stdin, deeper)
    elif (call := wrapper.engine_call(words)) is not None:
        _engine(unit, command, call, deeper)


def _again(unit: Unit, words: tuple[Word, ...], scene: Scene) -> None:
    """Words that a second shell joins and reads."""
    if len(words) == 1:
        add_script(unit, words[0].inner, scene)
    elif words:
        add_script(unit, spot(" ".join(one.text for one in words), words[0].place), scene)


def _engine(unit: Unit, command: Command, call: wrapper.EngineCall, scene: Scene) -> None:
    verb = "exec" if call.compose and call.verb == "run" else call.verb
    if verb == "build":
        tags = call.values("-t", "--tag")
        unit.images += [Image(ref, word.place, scene.scope, made=True) for ref, word in tags]
    elif verb == "tag" and len(call.rest) == 2:
        made = call.rest[1]
        unit.images.append(Image(made.text, made.place, scene.scope, made=True))
    elif verb == "pull" and not call.compose:
        unit.images += [Image(one.text, one.place, scene.scope, by="pull") for one in call.rest]
    elif verb == "exec" and len(call.rest) > 1:
        if call.has("-d", "--detach"):
            scene = replace(scene, wrappers=(*scene.wrappers, DETACHED))
        inside = replace(scene, where=Where.START, scope=call.rest[0].text, image="")
        _add(unit, call.rest[1:], inside, unit.next_script(), command.stdin)
    elif verb in ("run", "create") and call.rest:
        image, argv = call.rest[0], call.rest[1:]
        unit.images.append(Image(image.text, image.place, scene.scope, by="docker run"))
        unit.containers.append(_container(command.place, image.text, call))
        inside = replace(scene, where=Where.START, scope=image.text, image=image.text)
        entry = next((w for v, w in call.values("--entrypoint")), None)
        if entry is not None:
            value = next(v for v, _ in call.values("--entrypoint"))
            argv = (Word(value, entry.place, spot(value, entry.place)), *argv)
        if argv:
            _add(unit, argv, inside, unit.next_script(), command.stdin)


def _container(place: Place, image: str, call: wrapper.EngineCall) -> Container:
    """What `docker run` sets up."""
    name = next((value for value, _ in call.values("--name")), "")
    env = tuple(
        Variable(key, value, word.place, image)
        for pair, word in call.values("-e", "--env")
        for key, _, value in [pair.partition("=")]
    )
    gpus = next((word.place for value, word in call.values("--gpus")), None)
    for value, word in call.values("--device"):
        gpus = word.place if "nvidia" in value and gpus is None else gpus
    runtimes = list(call.values("--runtime"))
    mounts = tuple(
        Word(value, word.place, spot(value, word.place))
        for value, word in call.values("-v", "--volume", "--mount")
    )
    return Container(
        name or image, place, image, runtime=runtimes[0][0] if runtimes else "",
        runtime_place=runtimes[0][1].place if runtimes else None, gpus=gpus, env=env, mounts=mounts,
    )  # fmt: skip
