"""Commands that run other commands: sudo, env, timeout, `sh -c`, ssh, docker run and exec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from console.checks.lint.unit import Word

_VALUED = {
    "sudo": "-u -g -h -p -C -r -t -T -U --user --group", "doas": "-u -C", "nohup": "", "exec": "-a",
    "time": "-f -o", "command": "", "builtin": "", "env": "-u -C --unset --chdir", "nice": "-n",
    "ionice": "-c -n -p", "timeout": "-k -s --kill-after --signal", "stdbuf": "-i -o -e",
    "setsid": "", "taskset": "", "numactl": "-N -m -C -i -p", "tini": "-p -e", "dumb-init": "-r",
    "catchsegv": "", "unbuffer": "", "chrt": "-T -P -D", "gosu": "", "su-exec": "",
    "xargs": "-n -P -I -L -d -a -s -E",
}  # fmt: skip
"""Each program that starts what stands behind it, and its options that take a value."""
_FIRST = {"timeout": 1, "taskset": 1, "chrt": 1, "gosu": 1, "su-exec": 1}
"""How many words of its own it takes before the command."""
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


def name_of(word: Word) -> str:
    return word.text.rsplit("/", 1)[-1]


def stripped(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], tuple[str, ...]]:
    """The command behind its wrappers, and their names; ((), …) where there is none."""
    names: list[str] = []
    while words and (name := name_of(words[0])) in _VALUED:
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            break
        rest = _past_options(words[1:], _VALUED[name].split())
        while name == "env" and rest and "=" in rest[0].text:
            rest = rest[1:]
        left = rest[_FIRST.get(name, 0) :]
        if not left:
            break
        names.append(name)
        words = left
    return words, tuple(names)


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
    """`docker run|exec|build …`: the verb, its options with their values, what is left."""

    verb: str
    compose: bool
    options: tuple[tuple[str, Word, str], ...]
    rest: tuple[Word, ...]

    def values(self, *names: str) -> Iterator[tuple[str, Word]]:
        return ((value, word) for name, word, value in self.options if name in names)

    def has(self, *names: str) -> bool:
        return any(True for _ in self.values(*names))


def engine_call(words: tuple[Word, ...]) -> EngineCall | None:
    """A call of a container engine; None for every other command, and for half a one."""
    if not words or name_of(words[0]) not in (*ENGINES, "docker-compose", "podman-compose"):
        return None
    rest = words[1:]
    compose = "compose" in words[0].text
    before: list[tuple[str, Word, str]] = []
    for skipped in ("container", "image", "buildx", "builder", "compose"):
        found, rest = _options(rest)
        before += found
        if rest and rest[0].text == skipped:
            compose = compose or skipped == "compose"
            rest = rest[1:]
    found, rest = _options(rest)
    before += found
    if not rest:
        return None
    building = rest[0].text == "build"
    options, left = _options(rest[1:], leave=not building, letters="qD" if building else _LETTERS)
    return EngineCall(rest[0].text, compose, (*before, *options), left)


def _options(
    words: tuple[Word, ...], *, leave: bool = True, letters: str = _LETTERS
) -> tuple[list[tuple[str, Word, str]], tuple[Word, ...]]:
    """Options and what stands behind them; with `leave` they end at the first other word."""
    found: list[tuple[str, Word, str]] = []
    other: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text == "-":
            if leave:
                return found, words[at:]
            other.append(word)
            at += 1
            continue
        at += 1
        name, sign, value = word.text.partition("=")
        if word.text == "--":
            return found, words[at:]
        if not sign and not _bare(name, letters) and at < len(words):
            value = words[at].text
            at += 1
        found += [(one, word, value) for one in _letters(name, letters)]
    return found, tuple(other)


def _bare(name: str, letters: str) -> bool:
    """An option without a value."""
    return name in _BARE or (not name.startswith("--") and set(name[1:]) <= set(letters))


def _letters(name: str, letters: str) -> list[str]:
    """`-it` is two options."""
    if name.startswith("--") or not set(name[1:]) <= set(letters):
        return [name]
    return [f"-{letter}" for letter in name[1:]]
