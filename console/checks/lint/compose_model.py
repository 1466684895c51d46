"""What compose refuses of a file because its parts do not fit: services, volumes, networks and
files that are named and not there, dependencies in a circle, keys that exclude each other.

A file that is one layer of several may name what another one declares, so what is declared is
judged only of a file that compose reads alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path

from console.checks.lint import compose_ports
from console.checks.lint.compose_keys import MAX_FINDINGS
from console.checks.lint.compose_ports import Published
from console.checks.lint.unit import Hit, Place, Severity
from console.checks.lint.yaml_tree import Node

MAX_VALUES = 20_000
"""Of how many values of services, together, it is judged whether they fit."""
USUAL = tuple(f"{stem}.{end}" for stem in ("compose", "docker-compose") for end in ("yaml", "yml"))
"""Names of files that compose reads when it is given none."""
OF_SERVICE = "service:"
_SHARED = ("network_mode", "ipc", "pid")
_DECLARED = (("networks", "network"), ("secrets", "secret"), ("configs", "config"),
             ("models", "model"))  # fmt: skip
_TWICE = (
    ("cpus", ("deploy", "resources", "limits", "cpus")),
    ("mem_limit", ("deploy", "resources", "limits", "memory")),
    ("mem_reservation", ("deploy", "resources", "reservations", "memory")),
    ("pids_limit", ("deploy", "resources", "limits", "pids")),
    ("scale", ("deploy", "replicas")),
)
"""Keys of a service that say the same as one below `deploy`."""
_CONTENTS = {"secrets": ("file", "environment"), "configs": ("file", "environment", "content")}
_NO_VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{(?![A-Za-z_]\w*(?:\}|:?[-+?].*\})).*", re.DOTALL)
"""A `${` without a name and an end; a name may have what counts where it is empty."""
_FILLED_IN = re.compile(r"\$\{[^}]*\}")
_QUOTES, _ENDS = "'\"`)", ";&|<>"
_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def refused(root: Node, path: Path) -> Iterator[Hit]:
    """What compose refuses of the file at `path`, in no order."""
    services = {
        name: service
        for name, service in _pairs(root.get("services"))
        if service.fields is not None
    }
    yield from islice(_each(root, services, dict(_judged(services)), path), MAX_FINDINGS)


def _judged(services: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    """Services as long as they have few values together: aliases multiply them."""
    left, seen = MAX_VALUES, set[int]()
    for name, service in services.items():
        left -= sum(len(node.items or node.fields or ()) for _, node in service.pairs()) + 1
        if left < 0:
            return
        if id(service) not in seen:
            seen.add(id(service))
            yield name, service


def _each(
    root: Node, services: Mapping[str, Node], judged: Mapping[str, Node], path: Path
) -> Iterator[Hit]:
    for name, service in judged.items():
        at = f"services.{name}"
        yield from compose_ports.refused(service, at)
        yield from _conflicts(service, at)
        yield from _unsplit(service, at)
        yield from _hosts(service, at)
        yield from _missing_files(service, at, path)
    yield from _top(root)
    yield from _extended(services, judged)
    yield from _included(root, path)
    yield from _variables(root)
    if _is_alone(root, path):
        for name, service in judged.items():
            yield from _undeclared(root, services, name, service)
        yield from _circles(judged)
    yield from _same_ports(judged)
    yield from _same_names(judged)


def _unsplit(service: Node, at: str) -> Iterator[Hit]:
    """Command lines of one text that compose cannot make into words."""
    for key in ("command", "entrypoint"):
        node = service.get(key)
        if node is not None and node.text and not _splits(_FILLED_IN.sub("", node.text)):
            what = f"{at}.{key} is no command line: a quote, a bracket or a backslash is left open"
            yield Hit(node.place, what, fix=f"a list of words: `{key}: [program, --option]`")


def _splits(text: str) -> bool:
    """Whether compose makes words of a command line, by the rules of go-shellwords without a shell:
    it ends at `;`, `&`, `|`, `<` or `>`, and knows quotes, backslashes, backticks, and brackets
    after a dollar."""
    quote, escaped = "", False
    for before, sign in pairwise(f" {text}"):
        if escaped or (sign == "\\" and quote != "'"):
            escaped = not escaped
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        elif sign == "(":
            if before != "$":
                return False
            quote = ")"
        elif sign in _ENDS:
            break
    return not quote and not escaped


def _hosts(service: Node, at: str) -> Iterator[Hit]:
    for path in (("extra_hosts",), ("build", "extra_hosts")):
        hosts = service.get(*path)
        for item in hosts.each() if hosts is not None else ():
            if item.text and not set(":=$") & set(item.text):
                what = f"{at}.{'.'.join(path)}: `{item.text}` has no address"
                yield Hit(item.place, what, fix=f"`{item.text}:host-gateway`, or an address")


def _same_names(services: Mapping[str, Node]) -> Iterator[Hit]:
    """Containers of one name that start together."""
    seen: dict[str, str] = {}
    for name, service in services.items():
        container_name = service.get("container_name")
        if (
            container_name is None
            or not container_name.text
            or "$" in container_name.text
            or service.get("profiles")
        ):
            continue
        if container_name.text in seen:
            what = f"services.{name} and {seen[container_name.text]} have the same `container_name`"
            yield Hit(container_name.place, what, fix="another name, or none")
        seen.setdefault(container_name.text, name)


def _extended(services: Mapping[str, Node], judged: Mapping[str, Node]) -> Iterator[Hit]:
    """Services of the same file that a service extends, and that are not there or extend it."""
    after: dict[str, str] = {}
    for name, service in judged.items():
        node = service.get("extends")
        if node is None or service.get("extends", "file") is not None:
            continue
        after[name] = base = node.text or service.text_at("extends", "service")
        if base and "$" not in base and base not in services:
            what = f"services.{name} extends `{base}`, which the file does not declare"
            yield Hit(node.place, what, fix="its name, or `file:` with where it is")
    for name, base in after.items():
        trail = [name]
        while base in after and base not in trail:
            trail.append(base)
            base = after[base]
        if base == name:
            words = " → ".join([*trail, base])
            yield Hit(services[name].place, f"services extend each other: {words}", fix="cut it")


def _included(root: Node, path: Path) -> Iterator[Hit]:
    include = root.get("include")
    for item in include.each() if include is not None else ():
        node = item.get("path") if item.fields is not None else item
        for path_node in [node, *node.each()] if node is not None else ():
            if _is_missing(path_node.text, path, folders=True):
                what = f"`{path_node.text}` is included and not there"
                yield Hit(path_node.place, what, fix="the path as seen from this file")


def _variables(root: Node) -> Iterator[Hit]:
    """Values with a `${` that is no variable, which compose cannot fill in."""
    for node in root.walk():
        if node.text and (match := _NO_VARIABLE.search(node.text)) is not None:
            what = f"`{match[0][:40]}` is no variable, and compose cannot fill it in"
            yield Hit(node.place, what, fix="`${NAME}`, or `$$` for a dollar that is meant")


def _is_alone(root: Node, path: Path) -> bool:
    """Whether compose reads this file without another: nothing is included, no file beside it
    overrides it, and it is itself no layer above one with a usual name."""
    if root.get("include") is not None or "override" in path.name:
        return False
    if path.name in USUAL:
        stems = {name.rsplit(".", 1)[0] for name in USUAL}
        beside = (f"{stem}.override.{end}" for stem in stems for end in ("yaml", "yml"))
        return not any(path.with_name(name).is_file() for name in beside)
    return not any(path.with_name(name).is_file() for name in USUAL)


def _pairs(node: Node | None) -> Iterator[tuple[str, Node]]:
    return node.pairs() if node is not None else iter(())


def _names(node: Node | None) -> Iterator[tuple[str, Place]]:
    """The names of a list or of a mapping's keys, with their places; a long form's `source`."""
    if node is None:
        return
    for item in node.each():
        name = item.text if item.text is not None else item.text_at("source")
        yield name or "", item.place
    for key, _ in node.pairs():
        yield key, node.keys.get(key, node.place)


def _undeclared(
    root: Node, services: Mapping[str, Node], name: str, service: Node
) -> Iterator[Hit]:
    at = f"services.{name}"
    if not any(_is_given(service.get(key)) for key in ("image", "build", "extends", "provider")):
        yield Hit(service.place, f"{at} has neither an image nor a build", fix="`image:`")
    listed = Counter(other for other, _ in _names(service.get("depends_on")))
    for other in sorted(dependency for dependency, count in listed.items() if count > 1):
        place = (service.get("depends_on") or service).place
        yield Hit(place, f"{at}.depends_on has `{other}` twice", fix="once")
    for other, place in _needed(service):
        if "$" not in other and other not in services:
            what = f"{at} needs the service `{other}`, which the file does not declare"
            yield Hit(place, what, fix=f"declare `{other}` under `services:`, or leave it out")
        elif "$" not in other and _is_off(service, services[other], other):
            what = f"{at} needs `{other}`, which only a profile starts"
            fix = "the same `profiles:`, or `required: false`; else start it with that profile"
            yield Hit(place, what, Severity.WARNING, fix)
    for kind, word in _DECLARED:
        for other, place in _names(service.get(kind)):
            known = root.get(kind, other) is not None or (kind, other) == ("networks", "default")
            if other and "$" not in other and not known:
                yield _not_declared(at, word, other, place, kind)
    for other, place in _names(service.get("build", "secrets")):
        if other and "$" not in other and root.get("secrets", other) is None:
            yield _not_declared(at, "secret", other, place, "secrets")
    for other, place in _volumes(service):
        if root.get("volumes", other) is None:
            yield _not_declared(at, "volume", other, place, "volumes")
    yield from _without_check(services, name, service)


def _is_given(node: Node | None) -> bool:
    return node is not None and (node.text is None or bool(node.text))


def _is_off(service: Node, other: Node, name: str) -> bool:
    """Whether a service may start without the other one that it needs, by their profiles."""
    if service.get("profiles") or not other.get("profiles"):
        return False
    return service.text_at("depends_on", name, "required").lower() != "false"


def _not_declared(at: str, word: str, name: str, place: Place, kind: str) -> Hit:
    what = f"{at} uses the {word} `{name}`, which the file does not declare"
    more = f"; a directory begins with `./`, as `./{name}`" if kind == "volumes" else ""
    return Hit(place, what, fix=f"`{name}:` under `{kind}:` at the first level{more}")


def _volumes(service: Node) -> Iterator[tuple[str, Place]]:
    """The named volumes of a service: neither a path nor without a name."""
    volumes = service.get("volumes")
    for item in volumes.each() if volumes is not None else ():
        if item.text is None:
            source = item.text_at("source") if item.text_at("type") == "volume" else ""
        else:
            source, sign, _ = item.text.partition(":")
            source = source if sign and not source.startswith((".", "/", "~")) else ""
            if len(source) == 1 and item.text[2:3] in ("/", "\\"):
                continue  # compose takes it for a drive
        if source and "$" not in source:
            yield source, item.place


def _needed(service: Node) -> Iterator[tuple[str, Place]]:
    """The services without which a service does not start."""
    yield from _names(service.get("depends_on"))
    for key in _SHARED:
        node = service.get(key)
        if node is not None and (text := node.text or "").startswith(OF_SERVICE):
            yield text.removeprefix(OF_SERVICE), node.place
    for key in ("links", "volumes_from"):
        for name, place in _names(service.get(key)):
            if not name.startswith("container:"):
                yield name.partition(":")[0], place


def _without_check(services: Mapping[str, Node], name: str, service: Node) -> Iterator[Hit]:
    """A wait for the health of a service that has no check: an image may bring one along."""
    for other, how in _pairs(service.get("depends_on")):
        on = services.get(other)
        if on is None or how.text_at("condition") != "service_healthy":
            continue
        check = on.get("healthcheck")
        off = check is not None and (
            check.text_at("disable").lower() == "true"
            or [word.text for word in check.words()][:1] == ["NONE"]
            or [word.text for test in [check.get("test")] if test for word in test.words()][:1]
            == ["NONE"]
        )
        if check is None or off:
            what = f"services.{name} waits until `{other}` is healthy, which has no `healthcheck`"
            fix = "a `healthcheck:` there, unless its image has one; or `service_started`"
            yield Hit(how.place, what, Severity.ERROR if off else Severity.WARNING, fix)


def _circles(services: Mapping[str, Node]) -> Iterator[Hit]:
    """Each service that needs itself through others, once a circle."""
    needs = {name: dict(_needed(service)) for name, service in services.items()}
    done: set[str] = set()
    for first in needs:
        trail: list[str] = []
        while first not in done:
            done.add(first)
            trail.append(first)
            after = next((need for need in needs[first] if need in trail), None)
            if after is not None:
                circle = [*trail[trail.index(after) :], after]
                words = " → ".join(circle)
                yield Hit(needs[first][after], f"services need each other: {words}", fix="cut it")
                break
            first = next(
                (need for need in needs[first] if need in needs and need not in done), first
            )


def _conflicts(service: Node, at: str) -> Iterator[Hit]:
    """Keys of a service that exclude each other."""
    if service.text_at("network_mode") and (networks := service.get("networks")) is not None:
        yield Hit(networks.place, f"{at} has `network_mode` and `networks`", fix="one of them")
    for key, path in _TWICE:
        node, other = service.get(key), service.get(*path)
        if node is None or other is None or not node.text or not other.text:
            continue
        if "$" not in node.text + other.text and _amount(node.text) != _amount(other.text):
            dotted = ".".join(path)
            what = f"{at}: `{key}` is {node.text}, and `{dotted}` is {other.text}"
            yield Hit(node.place, what, fix="one of them, or the same in both")
    scale = service.get("scale") or service.get("deploy", "replicas")
    if scale is not None and (text := scale.text or "").lstrip("-").isdecimal():
        if int(text) < 0:
            yield Hit(scale.place, f"{at} asks for {text} containers", fix="0 or more")
        elif int(text) > 1 and service.text_at("container_name"):
            what = f"{at} has `container_name` and {text} containers, which would share it"
            yield Hit(scale.place, what, fix="leave `container_name` out")
    if service.text_at("build", "dockerfile") and service.text_at("build", "dockerfile_inline"):
        place = (service.get("build") or service).place
        yield Hit(place, f"{at}.build has two Dockerfiles", fix="`dockerfile` or the inline one")
    for devices in (service.get("deploy", "resources", "reservations", "devices"),
                    service.get("gpus")):  # fmt: skip
        for item in devices.each() if devices is not None else ():
            if item.get("count") is not None and item.get("device_ids") is not None:
                what = f"{at} asks for cards by `count` and by `device_ids`"
                yield Hit(item.place, what, fix="one of them")
    test = service.get("healthcheck", "test")
    words = test.words() if test is not None else ()
    if words and "$" not in words[0].text and words[0].text not in ("CMD", "CMD-SHELL", "NONE"):
        what = f"{at}.healthcheck.test begins with `{words[0].text}`"
        yield Hit(words[0].place, what, fix="CMD, CMD-SHELL or NONE first, or a text")


def _amount(text: str) -> float | str:
    """A number or a size as one number, so that `1g` and `1024m` are the same."""
    word = text.strip().lower().removesuffix("b").removesuffix("i").strip()
    power = _UNITS.get(word[-1:], 0)
    try:
        return float(word[:-1] if power else word) * float(1024**power)
    except ValueError:
        return text


def _top(root: Node) -> Iterator[Hit]:
    for kind in ("volumes", "networks", "secrets", "configs"):
        for name, node in _pairs(root.get(kind)):
            external = node.get("external")
            if node.fields is None or "$" in str(external.text if external else ""):
                continue
            if external is not None and (external.text or "").lower() in ("true", "yes"):
                own = (key for key in node.fields if not key.startswith("x-"))
                others = [key for key in own if key not in ("name", "external")]
                if others and kind == "volumes":
                    what = f"{kind}.{name} is external, and has `{others[0]}`"
                    yield Hit(node.place, what, fix=f"leave `{others[0]}` or `external` out")
            elif kind in _CONTENTS and external is None and node.get("driver") is None:
                given = [key for key in _CONTENTS[kind] if node.get(key) is not None]
                if len(given) != 1:
                    content = " and ".join(given) or "no content"
                    fix = f"one of {', '.join(_CONTENTS[kind])}, or `external: true`"
                    yield Hit(node.place, f"{kind}.{name} has {content}", fix=fix)


def _missing_files(service: Node, at: str, path: Path) -> Iterator[Hit]:
    """Files that compose reads with this one, and that are not there."""
    files = service.get("env_file")
    items = [files, *files.each()] if files is not None else []
    for item in items:
        node = item.get("path") if item.fields is not None else item
        is_needed = item.text_at("required").lower() not in ("false", "no", "n", "off")
        if node is not None and is_needed and _is_missing(node.text, path):
            what = f"{at} reads `{node.text}`, which is no file there"
            yield Hit(node.place, what, fix="make it, or `path:` with `required: false`")
    labels = service.get("label_file")
    for node in [labels, *labels.each()] if labels is not None else []:
        if _is_missing(node.text, path):
            yield Hit(node.place, f"{at} reads `{node.text}`, which is not there", fix="make it")
    file = service.get("extends", "file")
    if file is not None and _is_missing(file.text, path):
        what = f"{at} extends a service of `{file.text}`, which is not there"
        yield Hit(file.place, what, fix="the path as seen from this file")


def _is_missing(name: str | None, path: Path, *, folders: bool = False) -> bool:
    """Whether a named path is surely not there, or a directory where a file is needed (unless
    `folders` will do). One with a variable, a home or an address is not judged, nor one that this
    user may not see."""
    if not name or "$" in name or name.startswith("~") or ":" in name:
        return False
    try:
        return stat.S_ISDIR(os.stat(path.parent / name).st_mode) and not folders
    except (FileNotFoundError, NotADirectoryError):
        return path.parent.is_dir()
    except (OSError, ValueError):
        pass
    return False


def _same_ports(services: Mapping[str, Node]) -> Iterator[Hit]:
    """Ports of this machine that are published twice: of one service the engine refuses it, of two
    only if both are up at once, which a profile may prevent."""
    seen: dict[int, list[tuple[str, Published]]] = {}
    for name, service in services.items():
        profiles = {name for name, _ in _names(service.get("profiles"))}
        for port in compose_ports.published(service):
            same = seen.setdefault(port.port, [])
            met = (
                (who, published_port)
                for who, published_port in same[:MAX_FINDINGS]
                if published_port.meets(port)
            )
            # compose takes what is written twice for one
            others = (
                (who, published_port)
                for who, published_port in met
                if (who, published_port.target) != (name, port.target)
            )
            other = next(others, None)
            if other is not None and (other[0] == name or not profiles):
                who = "twice" if other[0] == name else f"and so does {other[0]}"
                line = other[1].place.line
                what = f"services.{name} publishes port {port.port}, {who} in line {line}"
                severity = Severity.ERROR if other[0] == name else Severity.WARNING
                yield Hit(port.place, what, severity, "another port, or never both at once")
            if not profiles or other is None:
                same.append((name, port))
