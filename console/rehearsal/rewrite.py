"""A playbook with stand-ins at the image boundary: the same text, other images, ports and times.

The filled-in document is rewritten before its validation, so all later code is the ordinary
console. Every change is a line in `notes`, for plan and report.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from console.common.errors import UsageError
from console.common.text import one_line
from console.config.playbook.kinds import Dropped, Moved, mark_of, marked, model_of
from console.config.playbook.measuring_steps import ContractStep
from console.config.playbook.preflight_steps import CheckpointStep, HostStep
from console.config.playbook.steps import Check, Report, Step, Unless
from console.rehearsal import image, speed
from console.rehearsal import workspace as place
from console.rehearsal.image import CHECKPOINT_WORD, GGUF_ENGINES, put_checkpoint, put_expected
from console.rehearsal.inside.settings import HOLDS, packed
from console.rehearsal.workspace import Mapping
from console.runtime.docker.client import engine_host
from console.runtime.docker.compose import base_argv, compose
from console.runtime.docker.engine_state import silent

SERVERS = (
    "sglang.launch_server",
    "ktransformers.server.main",
    "vllm.entrypoints.openai.api_server",
)
PROGRAMS = ("llama-server", "vllm")
"""Model servers: modules of Python, and programs."""
HOST = "host-process"
NEVER_READY_S = 20
DISK = "1GiB"
"""A rehearsal's images take a few hundred MB."""
KEPT = ("command", "entrypoint", "environment", "working_dir", "shm_size", "ipc", "ulimits", "user",
        "init", "stop_grace_period")  # fmt: skip
"""Keys kept of a compose service; the operator's file is only read."""
RESOLVE_S = 30.0
Tree = dict[str, Any]


def of_run(run_dir: Path, engine_host: str) -> Rewriter | None:
    """The rewriter for a run that is a rehearsal; None for a real run. Raises UsageError."""
    path = run_dir / place.MAPPING
    return Rewriter(place.read_mapping(path), engine_host) if path.exists() else None


class Rewriter:
    """Rewrites playbooks and site services by one mapping, collecting `notes` and `images`.

    `images`: real name → stand-in. `built`: those that a build step of the playbook makes.
    """

    def __init__(self, mapping: Mapping, engine_host: str = "") -> None:
        self.mapping = mapping
        self.engine_host = engine_host
        self.images: dict[str, str] = {}
        self.built: set[str] = set()
        self.notes: list[str] = []
        self._stacks: dict[str, str] = {}
        self._base = Path()

    def __call__(self, tree: Tree, base: Path) -> Tree:
        """A rewritten copy; `base`: what relative paths are relative to. Raises ConsoleError."""
        made = copy.deepcopy(tree)
        self._base = base
        fault = f", fault {self.mapping.fault}" if self.mapping.fault else ""
        made["title"] = f"REHEARSAL{fault}: {made.get('title', '')}"
        self._find_images(made)
        for name, service in (made.get("services") or {}).items():
            if isinstance(service, dict):
                self.service(name, service, base)
        all_steps = list(steps(made))
        if pace := self.mapping.for_image("").pace:
            self.notes.append(
                f"no gate has a wide grey zone: every other answer at {pace:.1f} tok/s"
            )
        speed.shorten(made, all_steps, self.notes)
        for step in all_steps:
            self._fields(Step, step, f"step {step.get('id')}")
        for guard in _tables(made.get("guards")):
            self.guard(guard)
        return made

    def record(self) -> dict[str, Any]:
        """The rehearsal's entry for a plan and a run's journal."""
        return {"fault": self.mapping.fault, "speed": self.mapping.speed,
                "notes": list(dict.fromkeys(self.notes))}  # fmt: skip

    def tag(self, name: str) -> str:
        """The stand-in of an image; the injected fault is part of its tag."""
        if name not in self.images:
            settings_bytes = packed(self.mapping.for_image(name)).encode()
            digest = hashlib.sha256(settings_bytes + self.mapping.base.encode()).hexdigest()[:8]
            self.images[name] = f"{image.stands_for(name)}-{digest}"
            self.notes.append(f"image {name} → {self.images[name]}")
        return self.images[name]

    def service(self, name: str, service: Tree, base: Path) -> None:
        service["url"] = self._text(service.get("url"))
        if self.mapping.fault == "never-ready":
            service.setdefault("ready", {})["timeout"] = f"{NEVER_READY_S}s"
            self.notes.append(f"ready: timeout {NEVER_READY_S}s for {service['url']}")
        if isinstance(service.get("container"), dict):
            self._container(service["container"], name)
        elif isinstance(service.get("compose"), dict):
            self._compose(service["compose"], base)
        elif isinstance(service.get("process"), dict):
            self._process(service, name)

    def _container(self, box: Tree, service: str) -> None:
        box["image"] = self.tag(str(box.get("image")))
        box["ports"] = [self._published(str(port)) for port in box.get("ports") or ()]
        mounts = [self._mount(str(mount)) for mount in box.get("mounts") or ()]
        box["mounts"] = [*mounts, f"{place.holds()}:{HOLDS}:rw"]
        if box.pop("gpus", None):
            self.notes.append("GPUs are scripted: none is given to a container")
        box.pop("network", None)
        box["cpus"] = round(self.mapping.cpus, 4)
        box["name"] = place.own_name(str(box.get("name") or service))

    def _compose(self, table: Tree, base: Path) -> None:
        file, service = base / str(table.get("file")), str(table.get("service"))
        env = {str(key): str(value) for key, value in (table.get("env") or {}).items()}
        cards = ",".join(card["uuid"] for card in self.mapping.settings.cards)
        definition = _resolved(
            file, service, str(table.get("profile") or ""), {"OMNI_GPUS": cards, **env},
            self.engine_host,
        )  # fmt: skip
        tag = self.tag(str(definition.get("image") or service))
        made = _written(_stand_in(service, definition, tag, self.mapping))
        self.notes.append(f"compose service {service} of {file} → {made}")
        self._stacks[str(file)] = str(made)
        table["file"] = str(made)
        _drop(table, "profile", "project")

    def _process(self, service: Tree, service_name: str) -> None:
        """Turn a model server into a container, for its quota; others stay processes."""
        self._environment(service["process"], f"service {service_name}")
        argv = [self._argument(argument) for argument in service["process"].get("argv") or ()]
        program = Path(str(argv[0])).name if argv else ""
        if not (set(SERVERS) & set(argv) or program in PROGRAMS):
            service["process"]["argv"] = argv
            return
        name = "python3" if program.startswith("python") else program
        box = {"image": f"{HOST}:1", "command": [name, *argv[1:]],
               "env": service["process"].get("env") or {}}  # fmt: skip
        self._container(box, service_name)
        service["container"] = {**box, "network": "host"}
        del service["process"]
        self.notes.append(f"host process {program} runs in a stand-in container")

    def _environment(self, table: Tree, where: str) -> None:
        """Without what a conda environment has, except for a stand-in of its interpreter."""
        environment = table.pop("environment", None)
        if not environment:
            return
        home = (
            Path(str(environment.get("conda") or "")) if isinstance(environment, dict) else Path()
        )
        if home.is_relative_to(place.work()):
            image.python(home / "bin/python")
        self.notes.append(f"{where}: its environment is not used")

    def guard(self, guard: Tree) -> None:
        if guard.get("metric") == "host.ram_available" and self.mapping.ram_below:
            limit = f"{self.mapping.ram_below >> 20}MiB"
            self.notes.append(f"guard host.ram_available below {guard.get('below')} → {limit}")
            guard["below"] = limit

    def _fields(self, model: type[BaseModel], table: Tree, where: str) -> None:
        """Do with every field of a model what is declared with it. Whatever else a field has, the
        addresses in it are moved: a kind that nobody thought of must not reach the real server."""
        for key, field in model.model_fields.items():
            mark, dropped, part = (
                mark_of(field, Moved), mark_of(field, Dropped), model_of(field)
            )  # fmt: skip
            if table.get(key) is None or mark is Moved.PROSE:
                continue
            if dropped is not None:
                if table.pop(key) and dropped.why:
                    self.notes.append(f"{where}: {key} {dropped.why}")
                continue
            if mark is Moved.OWN:
                OWN[model, key](self, table, where)
            elif mark is None and part is not None:
                value = table[key]
                for inner in _tables(value if isinstance(value, list) else [value]):
                    self._fields(part, inner, where)
                continue
            if key in table:
                table[key] = self._stand_in(mark, table[key])

    def _stand_in(self, mark: Moved | None, value: Any) -> Any:
        if isinstance(value, list):
            return [self._stand_in(mark, item) for item in value]
        match mark:
            case Moved.ARGV:
                return self._argument(value)
            case Moved.TEXT:
                return self._text(value)
            case Moved.PORT:
                return self.mapping.port(value)
            case Moved.IMAGE:
                return self.tag(str(value)) if value else value
            case Moved.MOUNT:
                return self._addresses(self._mount(str(value)))
        return self._addresses(value)

    def _addresses(self, value: Any) -> Any:
        """A value with every loopback address in it moved."""
        if isinstance(value, str):
            return self.mapping.address(value)
        if isinstance(value, list):
            return [self._addresses(item) for item in value]
        if isinstance(value, dict):
            return {key: self._addresses(item) for key, item in value.items()}
        return value

    def _download(self, step: Tree, where: str) -> None:
        if not isinstance(step["download"], dict):
            return
        self.notes.append(f"{where}: nothing is downloaded")
        step["note"] = "REHEARSAL: nothing is downloaded here"
        _drop(step, "download", "retry", "unless")

    def _quality(self, step: Tree, where: str) -> None:
        if isinstance(step["quality"], dict):
            speed.make_up(step, where, self.notes)

    def _report(self, report: Tree, where: str) -> None:
        if report["to"]:
            report["to"] = _rehearsal_report(str(report["to"]))

    def _checkpoint(self, checkpoint: Tree, where: str) -> None:
        repo = str(checkpoint.get("repo"))
        if repo != CHECKPOINT_WORD and not repo.startswith(f"{place.work()}/"):
            return  # what lies below the work directory is a path that was moved: nothing is there
        checkpoint["repo"] = str(put_checkpoint(checkpoint.get("engine") in GGUF_ENGINES))
        _drop(checkpoint, "include")
        self.notes.append(f"{where}: a made-up checkpoint; nothing is said about a real one")

    def _build(self, step: Tree, where: str) -> None:
        build = step["build"]
        if not isinstance(build, dict):
            return
        name = str(build.get("tag"))
        build["tag"] = self.tag(name)
        context = place.directory() / "builds" / self.tag(name).replace("/", "-").replace(":", "-")
        context.mkdir(parents=True, exist_ok=True)
        settings = self.mapping.for_image(name)
        (context / "Dockerfile").write_text(image.dockerfile(self.mapping.base, settings))
        build.update(context=str(context), dockerfile=str(context / "Dockerfile"))
        _drop(build, "target", "args", "platform", "source", "preflight")
        self.notes.append(f"build of {name}: the stand-in is built, nothing is compiled")

    def _expected(self, check: Tree, where: str) -> None:
        _make(check["file"], check.get("min_bytes"), self.mapping)

    def _done_before(self, unless: Tree, where: str) -> None:
        if _make(unless["file"], unless.get("min_bytes"), self.mapping):
            self.notes.append(f"{unless['file']} exists: that work counts as done")

    def _compose_files(self, host: Tree, where: str) -> None:
        paths = host["compose"] if isinstance(host["compose"], list) else [host["compose"]]
        files = [str(self._base / str(path)) for path in paths]
        host["compose"] = [self._stacks.get(file, file) for file in files]

    def _disk(self, host: Tree, where: str) -> None:
        disk = host["disk"]
        if isinstance(disk, dict) and disk.get("free"):
            self.notes.append(f"{where}: disk free {disk['free']} → {DISK}")
            disk["free"] = DISK

    def _against(self, contract: Tree, where: str) -> None:
        """Stand-ins are like each other, and unlike any real server whose answers were kept."""
        if contract.pop("against") != "baseline":
            self.notes.append("contract: compared with the stand-in baseline")

    def _find_images(self, tree: Tree) -> None:
        """Collect names first: a command may name an image before its build step."""
        for step in steps(tree):
            build = step.get("build")
            if isinstance(build, dict) and build.get("tag"):
                self.built.add(self.tag(str(build["tag"])))
            for name in marked(Step, step, Moved.IMAGE):
                if name:
                    self.tag(str(name))

    def _text(self, value: Any) -> Any:
        return self.mapping.text(value, self.images) if isinstance(value, str) else value

    def _argument(self, value: Any) -> Any:
        return self._text(self.mapping.port(value))

    def _published(self, text: str) -> str:
        host, _, inner = text.partition(":")
        return f"{self.mapping.port(host)}:{inner}"

    def _mount(self, text: str) -> str:
        source, _, rest = text.partition(":")
        return f"{_moved(source)}:{rest}" if source.startswith("/") else text


OWN: dict[tuple[type[BaseModel], str], Callable[[Rewriter, Tree, str], None]] = {
    (Step, "build"): Rewriter._build,
    (Step, "download"): Rewriter._download,
    (Step, "quality"): Rewriter._quality,
    (Step, "environment"): Rewriter._environment,
    (Check, "file"): Rewriter._expected,
    (Unless, "file"): Rewriter._done_before,
    (Report, "to"): Rewriter._report,
    (CheckpointStep, "repo"): Rewriter._checkpoint,
    (HostStep, "compose"): Rewriter._compose_files,
    (HostStep, "disk"): Rewriter._disk,
    (ContractStep, "against"): Rewriter._against,
}
"""What is done with the fields that are marked `Moved.OWN`."""


def steps(tree: Tree) -> Iterator[Tree]:
    """Every step of a document, `finally` included."""
    for phase in _tables(tree.get("phases")):
        yield from _tables(phase.get("steps"))
    yield from _tables(tree.get("finally"))


def _tables(values: Any) -> Iterator[Tree]:
    return (table for table in values or () if isinstance(table, dict))


def _drop(table: Tree, *keys: str) -> None:
    for key in keys:
        table.pop(key, None)


def _make(file: Any, least: Any, mapping: Mapping) -> bool:
    """Make a file of the work directory that a step asks for, as a stand-in; replace that of an
    earlier rehearsal, which names other images and quotas."""
    if not isinstance(file, str) or not file.startswith(f"{place.work()}/"):
        return False
    path = Path(file)
    if not path.is_dir():
        put_expected(path, least, mapping)
    return True


def _resolved(file: Path, service: str, profile: str, env: dict[str, str], host: str) -> Tree:
    """The service as `docker compose config` gives it. Raises ConsoleError."""
    argv = base_argv((file,), "", (profile,) if profile else ())
    text = compose(
        [*argv, "config", "--format", "json"], engine_host(host or None), env,
        "Reading the compose file", RESOLVE_S, silent,
    )  # fmt: skip
    definition = (json.loads(text).get("services") or {}).get(service)
    if not isinstance(definition, dict):
        raise UsageError(f"there is no service {one_line(service)} in {file}")
    return definition


def _stand_in(service: str, definition: Tree, tag: str, mapping: Mapping) -> Tree:
    kept = {key: definition[key] for key in KEPT if definition.get(key)}
    mounts = [
        _bind(volume) for volume in definition.get("volumes") or () if volume.get("type") == "bind"
    ]
    holds = {"type": "bind", "source": str(place.holds()), "target": HOLDS}
    limits = ((definition.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    memory = definition.get("mem_limit") or limits.get("memory")
    made: Tree = {
        **kept, "image": tag, "volumes": [*mounts, holds], "cpus": round(mapping.cpus, 4),
        "ports": [_port(port, mapping) for port in definition.get("ports") or ()], "restart": "no",
    }  # fmt: skip
    if memory:
        made["mem_limit"] = memory
    if definition.get("container_name"):
        made["container_name"] = place.own_name(definition["container_name"])
    return {"name": "omni-rehearsal", "services": {service: made}}


def _written(content: Tree) -> Path:
    """Write the file, named after its content. Raises OSError."""
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = place.directory() / "stacks" / f"{digest}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _moved(source: str) -> str:
    """A path of the playbook's machine inside the rehearsal's work directory; made if need be."""
    if source.startswith(str(place.directory())):
        return source
    path = place.work() / source.lstrip("/")
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _rehearsal_report(path: str) -> str:
    """Another place for a report that would else be filed as a real trial's."""
    if path.startswith(str(place.directory())):
        return path
    return str(place.directory() / "reports" / Path(path).name)


def _bind(volume: Tree) -> Tree:
    kept = {key: value for key, value in volume.items() if key in ("type", "target", "read_only")}
    return {**kept, "source": _moved(str(volume["source"]))}


def _port(port: Tree, mapping: Mapping) -> Tree:
    published = str(mapping.port(str(port.get("published") or port["target"])))
    return {**port, "host_ip": "127.0.0.1", "published": published}
