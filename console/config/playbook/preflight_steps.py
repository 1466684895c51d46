"""Steps that look before anything is paid for, and the download that follows them, as written.

Preflight steps cost nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.common.text import one_line
from console.common.units import DRIVER_FORM, format_bytes, is_driver
from console.config.playbook.kinds import Content, Dropped, Image, KeptText, Moved, Named, StepKind
from console.config.site.site import Compute, Rate
from console.config.validation import Arg, ByteCount, Strict, Text

Loader = Literal["mmap", "resident", "convert"]
Engine = Literal["llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"]
Port = Annotated[int, Field(ge=1, le=65535)]


def _texts(value: object) -> object:
    """Accept one text for a list of one."""
    return [value] if isinstance(value, str) else value


def _driver(value: object) -> str:
    if not isinstance(value, str) or not is_driver(value):
        raise ValueError(f"{DRIVER_FORM}, in quotes")
    return value


DriverVersion = Annotated[str, BeforeValidator(_driver), WithJsonSchema({"type": "string"})]
Texts = Annotated[
    list[Text], BeforeValidator(_texts), WithJsonSchema({"type": ["array", "string"]})
]


KeptTexts = Annotated[Texts, Moved.KEPT]


class CheckpointStep(Strict, Content):
    """Does it fit? `repo`: org/name[@revision], an address or a path. The loader takes its
    arguments from `service`, or from `args`. `beside`: the baseline goes on serving."""

    KIND: ClassVar = StepKind(
        "checkpoint", "preflight:checkpoint", 600.0, "Does it fit?", ("service",),
        judges=True, loads=False,
    )  # fmt: skip

    repo: Annotated[Text, Moved.OWN]
    include: KeptTexts = []
    exclude: KeptTexts = []
    loader: Loader | None = None
    engine: Engine | None = None
    service: Named = ""
    args: Annotated[list[Arg], Moved.KEPT] = []
    ctx: int | None = Field(None, ge=1)
    to: KeptText = ""
    beside: bool = False

    @model_validator(mode="after")
    def _one_source_of_args(self) -> CheckpointStep:
        if self.service and self.args:
            raise ValueError("!arguments come from service or from args, not from both")
        return self

    def effects(self) -> Iterator[str]:
        which = f" {' '.join(self.include)}" if self.include else ""
        yield f"looks up {one_line(self.repo)}{one_line(which)}: listing and headers only"
        how = self.engine or {"mmap": "llama.cpp"}.get(self.loader or "", "")
        parts = [how, self.loader or "", f"context {self.ctx}" if self.ctx else ""]
        if self.service:
            parts.append(f"the arguments of {self.service}")
        if self.args:
            parts.append(shlex.join(self.args))
        words = ", ".join(part for part in parts if part) or "as the file format requires"
        yield f"works out whether it fits, loaded by: {one_line(words, 300)}"
        if self.to:
            yield f"and whether the disk of {one_line(self.to)} holds it"
        if self.beside:
            yield "beside the baseline, which goes on serving"


class GgufStep(Strict, Content):
    """Does the build of `service`, `image` or `binary` accept the file's architecture?"""

    KIND: ClassVar = StepKind(
        "gguf", "preflight:gguf", 600.0, "Is the architecture known?", ("service",),
        judges=True, loads=False,
    )  # fmt: skip

    file: KeptText
    include: KeptTexts = []
    service: Named = ""
    image: Image = ""
    binary: KeptText = ""

    @model_validator(mode="after")
    def _at_most_one_build(self) -> GgufStep:
        if sum(bool(x) for x in (self.service, self.image, self.binary)) > 1:
            raise ValueError("!the build is one of service, image or binary")
        return self

    def effects(self) -> Iterator[str]:
        build = self.image or self.binary or self.service or "the baseline"
        where = "no GPU, no network" if not self.binary else "on the host"
        yield (
            f"reads the architecture of {one_line(self.file)} and asks the build of "
            f"{one_line(build)} with a probe file ({where})"
        )


class DiskAsk(Strict):
    path: KeptText
    free: ByteCount


OF_A_BUILD = Dropped("of a build are not asked for")
"""A rehearsal builds nothing."""


class HostStep(Strict, Content):
    """What this machine must have. `gpus`: every card that the site names is here. `tools` and
    `headers`: what a build on the host has to find, within the step's `environment` if it has one;
    among the tools, `nvcc` has to be of the version `cuda`, which is else a matter of a table.
    `builds`: build steps of this playbook, whose context, Dockerfile and source are read now;
    `source`: a tree that is built on this machine."""

    KIND: ClassVar = StepKind(
        "host", "preflight:host", 300.0, "This machine", judges=True, loads=False
    )

    method: KeptText = ""
    ports: Annotated[list[Port], Moved.PORT] = []
    images: Annotated[Texts, Moved.IMAGE] = []
    torch: Annotated[Texts, Moved.IMAGE] = []
    compose: Annotated[Texts, Moved.OWN] = []
    disk: Annotated[DiskAsk | None, Moved.OWN] = None
    sched_ext: bool = False
    gpus: bool = False
    compute: Compute | None = None
    cuda: Compute | None = None
    driver: Annotated[DriverVersion | None, Moved.KEPT] = None
    tools: Annotated[Texts, OF_A_BUILD] = []
    headers: Annotated[list[Annotated[str, Field(pattern=r"^[\w./+-]+$")]], OF_A_BUILD] = []
    builds: Annotated[list[str], OF_A_BUILD] = []
    source: Annotated[Text, OF_A_BUILD] = ""

    @property
    def uses_environment(self) -> bool:
        return bool(self.tools or self.headers)

    def effects(self) -> Iterator[str]:
        yield f"looks at this machine: {', '.join(self._wanted()) or 'memory, CPU, GPUs'}"

    def _wanted(self) -> Iterator[str]:
        if self.method:
            yield f"kernels for {one_line(self.method)}"
        if self.compute:
            yield f"compute capability {self.compute[0]}.{self.compute[1]}"
        if self.cuda:
            yield f"CUDA {self.cuda[0]}.{self.cuda[1]} for its GPUs"
        yield from (f"program {one_line(name)}" for name in self.tools)
        yield from (f"header {one_line(name)}" for name in self.headers)
        if self.driver:
            yield f"NVIDIA driver {one_line(self.driver)}"
        if self.gpus:
            yield "the site's GPUs"
        if self.sched_ext:
            yield "sched_ext in the kernel"
        yield from (f"port {port}" for port in self.ports)
        yield from (f"image {one_line(ref)}" for ref in self.images)
        yield from (f"PyTorch in {one_line(ref)}" for ref in self.torch)
        yield from (f"compose file {one_line(path)}" for path in self.compose)
        if self.disk is not None:
            yield f"{format_bytes(self.disk.free)} free at {one_line(self.disk.path)}"
        yield from (f"what the build of step {one_line(name)} needs" for name in self.builds)
        if self.source:
            yield f"what the sources in {one_line(self.source)} need to be built here"


class ImportsStep(Strict, Content):
    """Can these modules be imported in the image, with everything that they import?"""

    KIND: ClassVar = StepKind(
        "imports", "preflight:import_chain", 600.0, "Import chain", ("service",), judges=True
    )

    image: Image = ""
    service: Named = ""
    modules: KeptTexts = Field(min_length=1)
    python: KeptText = ""

    @model_validator(mode="after")
    def _image_or_service(self) -> ImportsStep:
        if bool(self.image) == bool(self.service):
            raise ValueError("!imports needs exactly one of image or service")
        return self

    @property
    def runs_program(self) -> bool:
        return True

    def effects(self) -> Iterator[str]:
        modules = ", ".join(one_line(name) for name in self.modules)
        yield (
            f"imports {modules} in a one-off container of {one_line(self.image or self.service)} "
            "(no GPU, no network)"
        )


class DownloadStep(Strict, Content):
    """`of` names the checkpoint step that judged it; a NO-GO there needs a typed override."""

    KIND: ClassVar = StepKind("download", "download:execute", 172800.0, "Download")

    repo: KeptText = ""
    of: Named = ""
    include: KeptTexts = []
    exclude: KeptTexts = []
    to: KeptText
    workers: int = Field(16, ge=1, le=64)
    verify_up_to: ByteCount = 0
    line: Rate | None = None

    @model_validator(mode="after")
    def _exactly_one_source(self) -> DownloadStep:
        if bool(self.repo) == bool(self.of):
            raise ValueError("!a download is of a checkpoint step, or of a repo")
        if self.of and (self.include or self.exclude):
            raise ValueError("!include and exclude come from the checkpoint step")
        return self

    @property
    def makes(self) -> str:
        return self.to

    def effects(self) -> Iterator[str]:
        what = f"what {self.of} judged" if self.of else one_line(self.repo)
        which = f" {' '.join(self.include)}" if self.include else ""
        yield (
            f"$ hf download of {what}{one_line(which)} → {one_line(self.to)}, "
            f"{self.workers} workers"
        )
        yield "pinned to one commit; what is here is kept; sizes verified; stops before a full disk"
        if self.of:
            yield f"a NO-GO of {self.of} needs a typed override"
