"""Shell scripts and argvs as the commands of a unit, including commands inside other commands.

These are inside sudo, env, timeout and their like, `sh -c`, ssh, docker run and docker exec.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from console.checks.lint import shell
from console.checks.lint.unit import (
    Command,
    Container,
    Hit,
    Image,
    Place,
    Snippet,
    Unit,
    Variable,
    Where,
    Word,
    spot,
)

DETACHED = "docker exec -d"
"""Marks, among a command's wrappers, that nothing waits for it or restarts it."""

DEEPEST = 6
"""Levels of nested shells that are examined."""

_VALUED = {
    "sudo": "-u -g -h -p -C -r -t -T -U --user --group", "doas": "-u -C", "nohup": "", "exec": "-a",
    "time": "-f -o", "command": "", "builtin": "", "env": "-u -C --unset --chdir", "nice": "-n",
    "ionice": "-c -n -p", "timeout": "-k -s --kill-after --signal", "stdbuf": "-i -o -e",
    "setsid": "", "taskset": "", "numactl": "-N -m -C -i -p", "tini": "-p -e", "dumb-init": "-r",
    "catchsegv": "", "unbuffer": "", "chrt": "-T -P -D", "gosu": "", "su-exec": "",
    "xargs": "-n -P -I -L -d -a -s -E",
}  # fmt: skip
"""Programs that start the command after them, each with its options that take a value."""
_FIRST = {"timeout": 1, "taskset": 1, "chrt": 1, "gosu": 1, "su-exec": 1}
"""How many words of its own each program takes before the command."""
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
ENGINES = ("docker", "podman", "nerdctl")
_BARE = frozenset(
    {"--rm", "--detach", "--interactive", "--tty", "--privileged", "--init", "--publish-all",
     "--read-only", "--quiet", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--no-deps",
     "--build", "--service-ports", "--no-TTY", "--use-aliases", "--remove-orphans", "--help",
     "--no-color", "--dry-run", "--compatibility", "--verbose", "--debug", "--tls", "--tlsverify"}
)  # fmt: skip
_LETTERS = "ditPqTD"
_SSH_BARE = frozenset("46AaCfGgKkMNnqsTtVvXxYy")


@dataclass(frozen=True, slots=True)
class Scene:
    where: Where
    scope: str = ""
    image: str = ""
    folder: str = ""
    env: tuple[Variable, ...] = ()
    depth: int = 0
    looped: bool = False
    tolerated: bool = False
    branched: bool = False
    wrappers: tuple[str, ...] = ()


def add_script(unit: Unit, snippet: Snippet, scene: Scene) -> str:
    """Add a shell text's commands; return the directory it ends in."""
    if scene.depth > DEEPEST:
        return scene.folder
    read = shell.parse(snippet)
    unit.cut = unit.cut or read.cut
    if read.wrong is not None and scene.depth == 0 and (complaint := shell.complaint(snippet.text)):
        unit.broken.append(Hit(read.wrong, f"no shell can read this: {complaint}"))
    unit.variables += [
        replace(variable, scope=scene.scope, branched=variable.branched or scene.branched)
        for variable in read.variables
    ]
    if scene.depth == 0:
        unit.comments += read.comments
        unit.spans += read.spans
    script = unit.next_script()
    folder = scene.folder
    for simple in read.commands:
        if name_of(simple.words[0]) in ("cd", "pushd") and len(simple.words) > 1:
            folder = joined(folder, simple.words[1].text)
        here = replace(
            scene, folder=folder, env=(*scene.env, *simple.env),
            looped=scene.looped or simple.looped, tolerated=scene.tolerated or simple.tolerated,
            branched=scene.branched or simple.branched,
        )  # fmt: skip
        _add(unit, simple.words, here, script, simple.stdin)
    return folder


def add_argv(unit: Unit, words: tuple[Word, ...], scene: Scene) -> None:
    """Add an argv that no shell reads."""
    if words and scene.depth <= DEEPEST:
        _add(unit, words, scene, unit.next_script(), None)


def joined(folder: str, step: str) -> str:
    """Where `cd step` leads; `..` and variables are kept as written."""
    return step if step.startswith("/") or not folder else f"{folder.rstrip('/')}/{step}"


def _add(
    unit: Unit, words: tuple[Word, ...], scene: Scene, script: int, stdin: Snippet | None
) -> None:
    words, wrappers, env = stripped(words)
    if not words:
        return
    scene = replace(scene, env=(*scene.env, *env))
    wrappers = (*scene.wrappers, *wrappers)
    command = Command(
        words, scene.where, scene.scope, script, scene.image, scene.env, wrappers,
        scene.looped, scene.tolerated, stdin, scene.folder, scene.branched,
    )  # fmt: skip
    unit.commands.append(command)
    deeper = replace(scene, depth=scene.depth + 1, wrappers=wrappers)
    text = shell_text(words)
    if text is not None:
        add_script(unit, text.inner, deeper)
    elif command.name == "eval" and len(words) > 1:
        _again(unit, words[1:], deeper)
    elif command.name == "trap" and len(words) > 2 and not words[1].text.startswith("-"):
        add_script(unit, words[1].inner, deeper)
    elif command.name == "ssh":
        _again(unit, remote_words(words), replace(deeper, where=Where.HOST, scope="ssh"))
    elif command.name in SHELLS and stdin is not None:
        add_script(unit, stdin, deeper)
    elif (call := engine_call(words)) is not None:
        _engine(unit, command, call, deeper)


def _again(unit: Unit, words: tuple[Word, ...], scene: Scene) -> None:
    """Words that a second shell joins and reads."""
    if len(words) == 1:
        add_script(unit, words[0].inner, scene)
    elif words:
        add_script(unit, spot(" ".join(word.text for word in words), words[0].place), scene)


def _engine(unit: Unit, command: Command, call: EngineCall, scene: Scene) -> None:
    verb = "exec" if call.compose and call.verb == "run" else call.verb
    if verb == "build":
        tags = call.values("-t", "--tag")
        unit.images += [Image(ref, word.place, scene.scope, made=True) for ref, word in tags]
    elif verb == "tag" and len(call.rest) == 2:
        made = call.rest[1]
        unit.images.append(Image(made.text, made.place, scene.scope, made=True))
    elif verb == "pull" and not call.compose:
        unit.images += [Image(word.text, word.place, scene.scope, by="pull") for word in call.rest]
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
        for value, entry in list(call.values("--entrypoint"))[:1]:
            argv = (Word.made(value, entry.place), *argv)
        if argv:
            _add(unit, argv, inside, unit.next_script(), command.stdin)


def _container(place: Place, image: str, call: EngineCall) -> Container:
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
    volumes = call.values("-v", "--volume", "--mount")
    mounts = tuple(Word.made(value, word.place) for value, word in volumes)
    return Container(
        name or image, place, image, runtime=runtimes[0][0] if runtimes else "",
        runtime_place=runtimes[0][1].place if runtimes else None, gpus=gpus, env=env, mounts=mounts,
    )  # fmt: skip


def name_of(word: Word) -> str:
    return word.text.rsplit("/", 1)[-1]


def stripped(
    words: tuple[Word, ...],
) -> tuple[tuple[Word, ...], tuple[str, ...], tuple[Variable, ...]]:
    """The command without its wrappers, their names, and what `env` sets for it; ((), …) if none is
    left."""
    names: list[str] = []
    variables: list[Variable] = []
    while words and (name := name_of(words[0])) in _VALUED:
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            break
        rest = _past_options(words[1:], _VALUED[name].split())
        while name == "env" and rest and "=" in rest[0].text:
            variable, _, value = rest[0].text.partition("=")
            variables.append(Variable(variable, value, rest[0].place))
            rest = rest[1:]
        left = rest[_FIRST.get(name, 0) :]
        if not left:
            break
        names.append(name)
        words = left
    return words, tuple(names), tuple(variables)


def _past_options(words: tuple[Word, ...], valued: list[str]) -> tuple[Word, ...]:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text == "--":
            return words[at + 1 :]
        at += 2 if words[at].text in valued else 1
    return words[at:]


def shell_text(words: tuple[Word, ...]) -> Word | None:
    """The script of `sh -c SCRIPT`, `bash -lc SCRIPT` and their like."""
    if not words or name_of(words[0]) not in SHELLS:
        return None
    for at, word in enumerate(words[1:], 1):
        if not word.text.startswith("-"):
            return None
        if not word.text.startswith("--") and "c" in word.text:
            return words[at + 1] if at + 1 < len(words) else None
    return None


def remote_words(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """What ssh runs on the other side."""
    rest, host = words[1:], False
    while rest:
        text = rest[0].text
        if text.startswith("-") and not host:
            rest = rest[1 if set(text[1:]) <= _SSH_BARE or len(text) > 2 else 2 :]
        elif not host:
            host, rest = True, rest[1:]
        else:
            return rest
    return ()


@dataclass(frozen=True, slots=True)
class EngineCall:
    """`docker run|exec|build …`: the verb, its options with their values, the rest."""

    verb: str
    compose: bool
    options: tuple[tuple[str, Word, str], ...]
    rest: tuple[Word, ...]

    def values(self, *names: str) -> Iterator[tuple[str, Word]]:
        return ((value, word) for name, word, value in self.options if name in names)

    def has(self, *names: str) -> bool:
        return any(True for _ in self.values(*names))


def engine_call(words: tuple[Word, ...]) -> EngineCall | None:
    """A call of a container engine; None for any other or incomplete command."""
    if not words or name_of(words[0]) not in (*ENGINES, "docker-compose", "podman-compose"):
        return None
    rest = words[1:]
    compose = "compose" in words[0].text
    before: list[tuple[str, Word, str]] = []
    for skipped in ("container", "image", "buildx", "builder", "compose"):
        global_options, rest = _options(rest)
        before += global_options
        if rest and rest[0].text == skipped:
            compose = compose or skipped == "compose"
            rest = rest[1:]
    global_options, rest = _options(rest)
    before += global_options
    if not rest:
        return None
    building = rest[0].text == "build"
    options, left = _options(rest[1:], leave=not building, letters="qD" if building else _LETTERS)
    return EngineCall(rest[0].text, compose, (*before, *options), left)


def _options(
    words: tuple[Word, ...], *, leave: bool = True, letters: str = _LETTERS
) -> tuple[list[tuple[str, Word, str]], tuple[Word, ...]]:
    """Options and the words after them; with `leave` they end at the first other word."""
    options: list[tuple[str, Word, str]] = []
    other: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text == "-":
            if leave:
                return options, words[at:]
            other.append(word)
            at += 1
            continue
        at += 1
        name, sign, value = word.text.partition("=")
        if word.text == "--":
            return options, words[at:]
        if not sign and not _bare(name, letters) and at < len(words):
            value = words[at].text
            at += 1
        options += [(letter, word, value) for letter in _letters(name, letters)]
    return options, tuple(other)


def _bare(name: str, letters: str) -> bool:
    """Whether an option takes no value."""
    return name in _BARE or (not name.startswith("--") and set(name[1:]) <= set(letters))


def _letters(name: str, letters: str) -> list[str]:
    """Split `-it` into two options."""
    if name.startswith("--") or not set(name[1:]) <= set(letters):
        return [name]
    return [f"-{letter}" for letter in name[1:]]
