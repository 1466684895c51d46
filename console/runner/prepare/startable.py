"""What is known before step 1 to keep a service from starting or answering: its program, its model
file, its port; and the files of a contract. A typing error there would else cost an outage.

Only what cannot come true later is a problem. A step that runs something may make a file or free a
port, so behind one a missing file is awaited instead, and a port is not looked at.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.common import paths
from console.common.errors import EngineError, InvalidFile, Problem, ServiceError
from console.common.options.engines import engine_of, engine_of_image
from console.common.options.table import is_same
from console.common.options.values import is_there, opened
from console.common.text import one_line
from console.config.candidates import CANDIDATES
from console.config.playbook.load import TITLE
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import Step
from console.config.playbook.tuning_step import BASELINE
from console.config.site.site import Site
from console.config.yaml import Document, Loc, parse
from console.host.ports import LOCAL, is_local, listeners, owners, port_of
from console.host.process import COOKIE, ProcessSpec, environment
from console.models.sizing.flags import judge
from console.models.sizing.flags.judge import Complaint, Sure
from console.runner.prepare import composed, contract, dry_start, mounts, quality
from console.runner.prepare.tuning import free_port_after, on_host
from console.runtime import engine_address
from console.runtime.spec import ComposeSpec, ContainerSpec, ServiceSpec

MODEL = ("-m", "--model", "--model-path", "--model_path", "-md", "--model-draft", "-mm", "--mmproj")
"""Options of engines whose value is a file or a directory, if it is no repository."""
FETCHED = ("-hf", "--hf", "-mu", "--model-url", "--docker-repo", "-dr", "--mmproj-url")
"""How options begin with which an engine fetches its model itself."""
ELSEWHERE = frozenset({
    "docker", "podman", "nerdctl", "apptainer", "singularity", "kubectl", "ssh", "chroot", "bwrap",
    "nsenter",
})  # fmt: skip
"""Programs after which paths and ports are those of another machine, or of a container."""
BY_NAME = ("vllm", "sglang")
"""Engines that take a relative name for a repository."""
MAX_NAMES = 2000


@dataclass
class _File:
    """A file that declares services, and where: of the playbook or of the site."""

    document: Document
    guessed: tuple[str, ...] = ()
    """Inputs without a value yet: what is made of them is not judged."""

    def raw(self, *loc: str) -> Any:
        node: Any = self.document.data
        for key in loc:
            node = node.get(key) if isinstance(node, dict) else None
        return node

    def is_guessed(self, name: str) -> bool:
        text = str(self.raw("services", name))
        return any(f"inputs.{input_name}" in text for input_name in self.guessed)

    def at(self, loc: tuple[str, ...], words: Sequence[str], index: int) -> Loc:
        """The place of a word of a list; that of the list where an input became several words."""
        raw = self.raw(*loc)
        return (*loc, index) if isinstance(raw, list) and len(raw) == len(words) else loc


@dataclass
class Look:
    """The problems of a playbook's services, and what is awaited of its earlier steps, in words."""

    problems: list[Problem] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)


def look(
    playbook: Playbook, site: Site | None, *, here: bool = True, now: bool = True,
    tries: bool = False,
) -> Look:  # fmt: skip
    """Look at every service that the playbook starts, in the order of its steps.

    `site`: None if none is known. `here`: whether this is the machine on which it is to run, so
    that its files and programs count. `now`: whether it is to run now, so that its ports have to be
    free. `tries`: whether the programs of engines are started for their version, which takes a
    moment each.
    """
    mine = _File(parse(playbook.text, str(playbook.path), TITLE), playbook.missing)
    walk = _Walk(playbook, site, here, now, mine, tries)
    walk.baseline()
    for _, step in playbook.steps():
        if step.when:
            walk.step(step)
    return walk.look


def refuse(playbook: Playbook, site: Site) -> None:
    """Raise InvalidFile if a service of the playbook cannot start or answer."""
    if problems := look(playbook, site, tries=True).problems:
        raise InvalidFile("no run starts: a step could not begin", sorted(problems))


def of_site(site: Site, *, here: bool) -> list[Problem]:
    """The same of every service that a site file declares; its baseline may be serving now."""
    file = _File(parse(site.text, str(site.path), TITLE))
    problems: list[Problem] = []
    for name, spec in site.service_specs().items():
        at = ("services", name)
        problems += _ports(file, at, spec)
        problems += _files(file, at, spec) if here else ()
        problems += _same_as_baseline(file, at, spec, site, here)
        problems += _refused(file, at, spec)
    problems += _ports(file, ("baseline",), site.baseline_spec())
    problems += _refused(file, ("baseline",), site.baseline_spec())
    problems += _files(file, ("baseline",), site.baseline_spec()) if here else ()
    return problems


class _Walk:
    """Goes through the steps and remembers what is up and what may have been made."""

    def __init__(
        self, playbook: Playbook, site: Site | None, here: bool, now: bool, mine: _File,
        tries: bool = False,
    ) -> None:  # fmt: skip
        self.playbook, self.site, self.mine = playbook, site, mine
        self.here, self.now, self.tries = here, now, tries
        self.declared = playbook.services()
        self.of_site = site.service_specs() if site is not None else {}
        self.theirs: _File | None = None
        self.up: dict[str, ServiceSpec] = {}
        self.makers: list[Step] = []
        self.stopped = False
        self.seen: set[str] = set()
        self.look = Look()

    def baseline(self) -> None:
        """What brings the baseline back has to start, whatever the steps do."""
        if self.site is not None:
            self._command_line(self._site_file(), (BASELINE,), self.site.baseline_spec())

    def step(self, step: Step) -> None:
        content = step.content
        starts = step.tune.service if step.tune is not None else content.starts
        if self.here and not self.mine.guessed:
            self._refuse(*contract.refused(self.playbook, step, self._maker))
            if step.quality is not None and self.site is not None:
                self._refuse(*quality.refused(self.playbook, self.site, step, self._maker))
        if starts:
            self._start(starts)
            if (spec := self.up.get(starts)) is not None and _writes(spec):
                self.makers.append(step)
        if content.stops:
            self.up.pop(content.stops, None)
            self.stopped = True
        elif step.cutover is not None and not step.cutover.stays:
            self.up.clear()
        elif content.makes is not None:
            self.makers.append(step)

    def _start(self, name: str) -> None:
        spec = self.declared.get(name) or self.of_site.get(name)
        if spec is None and name == BASELINE and self.site is not None:
            self._try(self._site_file(), (BASELINE,), self.site.baseline_spec())
        if spec is None:
            return  # the baseline, or one that the strict reader refuses
        file = self.mine if name in self.declared else self._site_file()
        if file.is_guessed(name):
            return
        at = ("services", name)
        for other in self.up.values():
            if other.name != name and _same_door(other.url, spec.url):
                what = f"service '{name}' has the port of '{other.name}', which is up by then"
                self._refuse(file.document.problem((*at, "url"), what, "a port of its own"))
        self.up[name] = spec
        if name not in self.seen:
            self.seen.add(name)
            self._judge(file, at, spec)

    def _judge(self, file: _File, at: tuple[str, ...], spec: ServiceSpec) -> None:
        self._refuse(*_ports(file, at, spec))
        if file is not self.mine:  # what stands in the playbook is judged by lint
            self._command_line(file, at, spec)
        if self.site is not None:
            self._refuse(*_same_as_baseline(file, at, spec, self.site, self.here))
        if not self.here:
            return
        gone = list(_gone(file, at, spec, self.site))
        below = (pair for pair in _missing(file, at, spec)
                 if not any(pair[1].is_relative_to(path) for _, path in gone))  # fmt: skip
        self._await(spec.name, [*gone, *below])
        self._refuse(*_hands_engine_over(file, at, spec, self.site))
        if self.now and isinstance(spec.runs, ComposeSpec):
            self._composed(spec, spec.runs)
        self._try(file, at, spec)
        if self.now and not self._anything() and not self.stopped:
            self._refuse(*_taken(file, at, spec))

    def _await(self, name: str, missing: Iterable[tuple[Problem, Path]]) -> None:
        """Refuse what is missing, unless an earlier step may make it."""
        for problem, path in missing:
            maker = self._maker(path)
            if maker is None:
                self._refuse(problem)
            else:
                self.look.awaited.append(
                    f"{name}: {one_line(str(path))} is not there yet; step {maker.id} has to make "
                    "it"
                )

    def _composed(self, spec: ServiceSpec, runs: ComposeSpec) -> None:
        """Ask compose what a service of its files comes to, and that what a container is asked."""
        name = spec.name
        maker = next((made for file in runs.files if (made := self._maker(file))), None)
        if maker is not None:
            self.look.awaited.append(
                f"{name}: its compose file is not judged before step {maker.id}, which may write it"
            )
            return
        for other in composed.unread(runs):
            self.look.awaited.append(
                f"{name}: {one_line(str(other))} is not read: only the named files are"
            )
        composition = composed.read(self.site.equipped(spec) if self.site is not None else spec)
        self._refuse(*composition.refused)
        if composition.spec is None:
            if composition.unknown:
                words = one_line(composition.unknown, 200)
                self.look.awaited.append(
                    f"{name}: UNKNOWN whether compose takes its file, judged as lint does: {words}"
                )
            return
        file, at = _File(composition.document), ("services", name)
        self._refuse(*_ports(file, at, composition.spec), *composed.limits(composition, name),
                     *_hands_engine_over(file, at, composition.spec, self.site))  # fmt: skip
        self._command_line(file, at, composition.spec)
        gone = list(composed.missing(composition, name))
        below = (pair for pair in _missing(file, at, composition.spec)
                 if not any(pair[1].is_relative_to(path) for _, path in gone))  # fmt: skip
        self._await(name, [*gone, *below])

    def _try(self, file: _File, at: tuple[str, ...], spec: ServiceSpec) -> None:
        """Start a process's program for its version, unless an earlier step may still make it."""
        if not (self.tries and self.here and isinstance(spec.runs, ProcessSpec)):
            return
        if self._maker(Path(spec.runs.cwd, spec.runs.argv[0])) is not None or self.look.problems:
            return
        if why := dry_start.trouble(spec.runs):
            loc = file.at((*at, "process", "argv"), spec.runs.argv, 0)
            what = f"service '{spec.name}' does not start: {why}"
            hint = (
                "its libraries and `env` have to agree: LD_LIBRARY_PATH, the environment, the build"
            )
            self._refuse(file.document.problem(loc, what, "a program that starts", hint))

    def _command_line(self, file: _File, at: tuple[str, ...], spec: ServiceSpec) -> None:
        """Refuse a command line that no known build of its engine takes, and name what another
        version may take."""
        self._refuse(*_refused(file, at, spec))
        for complaint in _complaints(spec):
            if complaint.sure is Sure.DOUBTED:
                unknown = "UNKNOWN whether its engine takes the command line"
                words = f"{spec.name}: {unknown}: {complaint.words}"
                self.look.awaited.append(one_line(words, 300))

    def _anything(self) -> bool:
        """Whether a step before may free a port: it runs a program, or asks a person."""
        return any(not step.content.makes and step.service is None for step in self.makers)

    def _maker(self, path: Path) -> Step | None:
        """The latest step before that may make a file; None if none can."""
        for step in reversed(self.makers):
            directory = step.content.makes
            if not directory:
                return step
            to = Path(self.playbook.base, os.path.expanduser(directory))
            if path.is_relative_to(to):
                return step
        return None

    def _refuse(self, *problems: Problem) -> None:
        self.look.problems += [problem for problem in problems if problem not in self.look.problems]

    def _site_file(self) -> _File:
        assert self.site is not None
        if self.theirs is None:
            self.theirs = _File(parse(self.site.text, str(self.site.path), TITLE))
        return self.theirs


def _writes(spec: ServiceSpec) -> bool:
    """Whether a service may make files on this machine: one in a container with a place for that.
    An engine that is a process makes none that another one serves."""
    if isinstance(spec.runs, ContainerSpec):
        return any(not mount.read_only for mount in spec.runs.mounts)
    return isinstance(spec.runs, ComposeSpec)


def _same_door(first_url: str, other: str) -> bool:
    """Whether two URLs lead to the same port of the same address."""
    hosts = [urlsplit(url).hostname or "" for url in (first_url, other)]
    near = hosts[0] == hosts[1] or all(host in LOCAL for host in hosts)
    return near and port_of(first_url) == port_of(other)


def _same_as_baseline(
    file: _File, at: tuple[str, ...], spec: ServiceSpec, site: Site, here: bool
) -> Iterator[Problem]:
    base = site.model.baseline.url
    if _same_door(base, spec.url):
        what = f"service '{spec.name}' has the baseline's own port {port_of(base)}"
        hint = _free_near(port_of(base)) if here else ""
        yield file.document.problem((*at, "url"), what, "another port", hint)


def _free_near(port: int) -> str:
    try:
        return f"{free_port_after(port)} is free"
    except ServiceError:
        return ""


def _words(spec: ServiceSpec) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The lists of words of a service's command line, each with its keys below the service; none
    for one that is carried out elsewhere."""
    if isinstance(spec.runs, ProcessSpec):
        if ELSEWHERE & {os.path.basename(word) for word in spec.runs.argv}:
            return
        yield ("process", "argv"), spec.runs.argv
    elif isinstance(spec.runs, ContainerSpec):
        yield ("container", "entrypoint"), spec.runs.entrypoint
        yield ("container", "command"), spec.runs.command


def _options(words: Sequence[str], names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The values of options, `--name VALUE` or `--name=VALUE`, and where each stands."""
    for index, (word, after) in enumerate(pairwise((*words, ""))):
        name, sign, value = word.partition("=")
        if name.startswith("-") and any(is_same(name, option) for option in names):
            yield (index, value) if sign else (index + 1, after)


def _ports(file: _File, at: tuple[str, ...], spec: ServiceSpec) -> Iterator[Problem]:
    """The port that the command line gives has to be the one at which the service is asked."""
    outer = port_of(spec.url)
    inner = outer
    if isinstance(spec.runs, ContainerSpec) and spec.runs.network != "host":
        published = dict(spec.runs.ports)
        if not published or spec.runs.network:
            return
        if outer not in published and is_local(spec.url):
            ports = ", ".join(map(str, published))
            what = f"service '{spec.name}' is asked at port {outer}, but publishes {ports}"
            yield file.document.problem((*at, "url"), what, f"{outer}:PORT among its ports")
            return
        inner = published.get(outer, 0)
    for keys, words in _words(spec):
        given = list(_options(words, ("--port",)))
        if not given or not inner or "--" in words:
            continue
        index, value = given[-1]  # the last one counts
        if value.isascii() and value.isdigit() and int(value) != inner:
            loc = file.at((*at, *keys), words, index)
            url = one_line(spec.url, 80)
            what = f"service '{spec.name}' listens at port {value}, but is asked at {url}"
            hint = "" if inner == outer else f"port {outer} leads to port {inner} of its container"
            yield file.document.problem(loc, what, f"--port {inner}", hint)


def _complaints(spec: ServiceSpec) -> list[Complaint]:
    """What the engine of a service says of its command line; nothing where that is not known."""
    runs = spec.runs
    words = [word for _, part in _words(spec) for word in part]
    if not isinstance(runs, ProcessSpec | ContainerSpec):
        return []
    tables = judge.tables_of(words, runs.image if isinstance(runs, ContainerSpec) else "")
    return judge.judged(tables, words, dict(runs.env))


def _refused(file: _File, at: tuple[str, ...], spec: ServiceSpec) -> Iterator[Problem]:
    """The command line's words that every known build of its engine refuses."""
    for complaint in _complaints(spec):
        if complaint.sure is not Sure.REFUSED:
            continue
        loc: Loc = at
        spelling = complaint.option.spelling if complaint.option is not None else ""
        for keys, words in _words(spec):
            if spelling in words:
                loc = file.at((*at, *keys), words, words.index(spelling))
        what = f"service '{spec.name}': its engine refuses {complaint.words}"
        yield file.document.problem(loc, what, "", "`--help` of its own build lists its options")


def _hands_engine_over(
    file: _File, at: tuple[str, ...], spec: ServiceSpec, site: Site | None
) -> Iterator[Problem]:
    """A mount in which the engine's socket lies: whoever reaches it is root on this machine, and
    the start refuses it."""
    host = site.model.engine.host if site is not None else ""
    try:
        socket = Path(engine_address.socket_of(engine_address.address(host))).resolve()
    except EngineError:
        return  # it is elsewhere, or nobody knows which: the start says so
    for mount in spec.runs.mounts if isinstance(spec.runs, ContainerSpec) else ():
        if socket.is_relative_to(Path(mount.source).resolve()):
            source = one_line(mount.source, 200)
            what = (
                f"service '{spec.name}': mounting {source} would hand the engine to the container"
            )
            hint = f"the engine's socket {socket} is inside: mount a directory below it instead"
            yield file.document.problem((*at, "container", "mounts"), what, "", hint)


def _gone(
    file: _File, at: tuple[str, ...], spec: ServiceSpec, site: Site | None
) -> Iterator[tuple[Problem, Path]]:
    """Mounts of what this machine does not have, if the engine is this machine's."""
    host = site.model.engine.host if site is not None else ""
    try:
        engine_address.socket_of(engine_address.address(host))
    except EngineError:
        return
    for path in mounts.gone(spec.runs) if isinstance(spec.runs, ContainerSpec) else ():
        what = f"service '{spec.name}': there is no {one_line(str(path), 300)} to mount"
        loc = (*at, "container", "mounts")
        yield file.document.problem(loc, what, "a source that is there", _near(path)), path


def _files(file: _File, at: tuple[str, ...], spec: ServiceSpec) -> list[Problem]:
    return [problem for problem, _ in _missing(file, at, spec)]


def _missing(file: _File, at: tuple[str, ...], spec: ServiceSpec) -> Iterator[tuple[Problem, Path]]:
    """What the command line names and this machine does not have, and where it would be."""
    # the demo makes its models when it is first started
    later = {paths.demo_dir() / "models" / f"{name}.gguf" for name in ("baseline", *CANDIDATES)}
    if isinstance(spec.runs, ProcessSpec):
        yield from _program(file, at, spec.name, spec.runs)
    for keys, words in _words(spec):
        if any(word.startswith(FETCHED) for word in words):
            continue
        for index, value in _options(words, MODEL):
            path = on_host(spec.runs, value) if _is_file(value, words) else None
            if path is not None and path not in later and not path.exists():
                loc = file.at((*at, *keys), words, index)
                what = f"service '{spec.name}': there is no {one_line(str(path), 300)}"
                yield file.document.problem(loc, what, "a model that is there", _near(path)), path
        yield from _unopened(file, (*at, *keys), spec, words)


def _unopened(
    file: _File, at: tuple[str, ...], spec: ServiceSpec, words: Sequence[str]
) -> Iterator[tuple[Problem, Path]]:
    """What else the engine opens at its start, and what is not there."""
    options = _options_of(spec.runs)
    for opened_path in opened(options, words) if options else ():
        path = on_host(spec.runs, opened_path.path)
        if (
            path is None
            or is_there(path, opened_path.kind)
            or any(is_same(opened_path.option, m) for m in MODEL)
        ):
            continue
        index = next((i for i, word in enumerate(words) if opened_path.path in word), 0)
        what = (
            f"service '{spec.name}': there is no {one_line(str(path), 300)}, and the engine does "
            f"not start without it ({opened_path.option})"
        )
        wanted = (
            "a directory that is there" if opened_path.kind == "dir" else "a file that is there"
        )
        yield file.document.problem(file.at(at, words, index), what, wanted, _near(path)), path


def _options_of(runs: object) -> str:
    """The table of options of the engine that is run; llama.cpp's of a fork, "" of no engine."""
    engine = None
    if isinstance(runs, ProcessSpec):
        engine = engine_of(runs.argv)
    elif isinstance(runs, ContainerSpec):
        engine = engine_of([*runs.entrypoint, *runs.command]) or engine_of_image(runs.image)
    return engine.options if engine else ""


def _is_file(value: str, words: Sequence[str]) -> bool:
    """Whether an option's value can only be a path: engines take names of repositories, too."""
    if value.startswith(("/", "./", "../")):
        return True
    by_name = any(name in word for word in words[:6] for name in BY_NAME)
    return value.endswith(".gguf") and not by_name


def _near(path: Path) -> str:
    """What was meant, as far as the directory tells."""
    parent = next((ancestor for ancestor in path.parents if ancestor.is_dir()), None)
    if parent is None or parent != path.parent:
        return f"there is no directory {one_line(str(path.parent), 200)}"
    try:
        names = os.listdir(parent)[:MAX_NAMES]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, 1)
    return f"did you mean {one_line(near[0], 120)}?" if near else f"ls {one_line(str(parent), 200)}"


def _program(
    file: _File, at: tuple[str, ...], name: str, runs: ProcessSpec
) -> Iterator[tuple[Problem, Path]]:
    """The program and the directory that it is started in."""
    keys, program = (*at, "process"), runs.argv[0]
    try:
        path = environment(runs.env, "", within=runs.within).get("PATH", os.defpath)
    except ServiceError as error:
        where = Path(runs.within.conda or runs.within.file)
        words = f"service '{name}': {error}"
        yield file.document.problem((*keys, "environment"), words, "", error.hint), where
        return
    if runs.cwd and not os.path.isdir(runs.cwd):
        what = f"service '{name}': there is no directory {one_line(runs.cwd, 200)}"
        yield file.document.problem((*keys, "cwd"), what, "the one it starts in"), Path(runs.cwd)
        return
    loc = file.at((*keys, "argv"), runs.argv, 0)
    program_text = one_line(program, 200)
    if "/" not in program:
        if shutil.which(program, path=path) is None:
            what = f"service '{name}': no program {program_text} is found"
            hint = "its whole path; an argv knows no alias and no function of a shell"
            yield file.document.problem(loc, what, "a program of PATH", hint), Path(program)
        return
    program_path = Path(runs.cwd, program)
    if not program_path.exists():
        what = f"service '{name}': there is no program {program_text}"
        yield (
            file.document.problem(loc, what, "a program that is there", _near(program_path)),
            program_path,
        )
    elif not (program_path.is_file() and os.access(program_path, os.X_OK)):
        what = f"service '{name}': {program_text} cannot be executed"
        hint = f"chmod +x {one_line(str(program_path), 200)}" if program_path.is_file() else ""
        yield file.document.problem(loc, what, "a program", hint), program_path


def _taken(file: _File, at: tuple[str, ...], spec: ServiceSpec) -> Iterator[Problem]:
    """Whether another program has the service's port now. What a run has started may be the very
    service, and what the engine holds for a container may be its container."""
    url, port = spec.url, port_of(spec.url)
    if not is_local(url) or not owners(url):
        return
    if isinstance(spec.runs, ContainerSpec | ComposeSpec):
        return  # a container of an earlier run is used again; the engine holds its port
    holders = list(listeners(url))
    who = next((holder for holder in holders if not _is_of_a_run(holder.pid)), None)
    if holders and who is None:
        return
    holder = f"process {who.pid} ({who.words})" if who else "another user's program"
    what = f"service '{spec.name}': port {port} is taken by {holder}"
    yield file.document.problem((*at, "url"), what, "a port that is free", _free_near(port))


def _is_of_a_run(pid: int) -> bool:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(variable.startswith(f"{COOKIE}=".encode()) for variable in data.split(b"\0"))
