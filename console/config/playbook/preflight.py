"""Step kinds that look before anything is paid for, and the download, as they are written."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from console.common.units import DRIVER_FORM, is_driver
from console.config.site.machine import Compute, Rate
from console.config.validation import Arg, ByteCount, Strict, Text

LOOKS = ("checkpoint", "gguf", "host", "imports")
"""They judge as a gate does: GO, NO-GO, HOLD."""

Loader = Literal["mmap", "resident", "convert"]
Engine = Literal["llama.cpp", "ik_llama.cpp", "sglang", "kt-kernel", "vllm", "exllamav3"]
Port = Annotated[int, Field(ge=1, le=65535)]


def _texts(value: object) -> object:
    """One text stands for a list of one."""
    return [value] if isinstance(value, str) else value


def _driver(value: object) -> str:
    if not isinstance(value, str) or not is_driver(value):
        raise ValueError(f"{DRIVER_FORM}, in quotes")
    return value


DriverVersion = Annotated[str, BeforeValidator(_driver), WithJsonSchema({"type": "string"})]
Texts = Annotated[
    list[Text], BeforeValidator(_texts), WithJsonSchema({"type": ["array", "string"]})
]


class CheckpointStep(Strict):
    """Does it fit? `repo`: org/name[@revision], an address or a path. `service` lends its
    arguments to the loader, `args` are given here. `beside`: the baseline goes on serving."""

    repo: Text
    include: Texts = []
    exclude: Texts = []
    loader: Loader | None = None
    engine: Engine | None = None
    service: str = ""
    args: list[Arg] = []
    ctx: int | None = Field(None, ge=1)
    to: Text = ""
    beside: bool = False

    @model_validator(mode="after")
    def _one(self) -> CheckpointStep:
        if self.service and self.args:
            raise ValueError("!arguments come from service or from args, not from both")
        return self


class GgufStep(Strict):
    """Is the file's architecture one that the build of `service`, `image` or `binary` accepts?"""

    file: Text
    include: Texts = []
    service: str = ""
    image: Text = ""
    binary: Text = ""

    @model_validator(mode="after")
    def _one(self) -> GgufStep:
        if sum(bool(x) for x in (self.service, self.image, self.binary)) > 1:
            raise ValueError("!the build is one of service, image or binary")
        return self


class DiskAsk(Strict):
    path: Text
    free: ByteCount


class HostStep(Strict):
    """What this machine has to have. `gpus`: every card that the site names is here."""

    method: Text = ""
    ports: list[Port] = []
    images: Texts = []
    torch: Texts = []
    compose: Texts = []
    disk: DiskAsk | None = None
    sched_ext: bool = False
    gpus: bool = False
    compute: Compute | None = None
    cuda: Compute | None = None
    driver: DriverVersion | None = None


class ImportsStep(Strict):
    """Can these modules be imported in the image, all the way down?"""

    image: Text = ""
    service: str = ""
    modules: Texts = Field(min_length=1)
    python: Text = ""

    @model_validator(mode="after")
    def _one(self) -> ImportsStep:
        if bool(self.image) == bool(self.service):
            raise ValueError("!imports needs exactly one of image or service")
        return self


class DownloadStep(Strict):
    """`of` names the checkpoint step that judged it: its NO-GO asks for a typed override."""

    repo: Text = ""
    of: str = ""
    include: Texts = []
    exclude: Texts = []
    to: Text
    workers: int = Field(16, ge=1, le=64)
    verify_up_to: ByteCount = 0
    line: Rate | None = None

    @model_validator(mode="after")
    def _one(self) -> DownloadStep:
        if bool(self.repo) == bool(self.of):
            raise ValueError("!a download is of a checkpoint step, or of a repo")
        if self.of and (self.include or self.exclude):
            raise ValueError("!include and exclude come from the checkpoint step")
        return self
