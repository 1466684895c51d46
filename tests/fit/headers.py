"""GGUF headers as values, for facts: of the tiny models, and of large ones in their true shape."""

from __future__ import annotations

from dataclasses import dataclass, field

from console.models.gguf.header import Array
from console.rehearsal.demo.model import Value
from tests.fit.tiny import Model


@dataclass(frozen=True)
class FakeTensor:
    name: str
    dims: tuple[int, ...]
    type_name: str
    bytes: int | None


@dataclass(frozen=True)
class FakeHeader:
    kv: dict[str, object]
    tensors: list[FakeTensor] | None = field(default_factory=list)

    @property
    def architecture(self) -> str | None:
        name = self.kv.get("general.architecture")
        return name if isinstance(name, str) else None


def header_of(model: Model) -> FakeHeader:
    """The header that the file of a tiny model has."""
    tensors = [
        FakeTensor(t.name, tuple(reversed(t.shape)), "F32" if t.role == "norm" else "F16", t.size)
        for t in model.tensors
    ]
    return FakeHeader({key: kept(value) for key, value in model.metadata.items()}, tensors)


def kept(value: Value) -> object:
    """A value as a reader keeps it: small arrays of numbers with their numbers."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return Array("STRING", len(value))
    return Array("INT32", len(value), tuple(int(one) for one in value))
