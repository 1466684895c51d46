"""`cutover`: clients of the baseline reach a candidate, as an operator writes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from console.config.validation import Duration, Strict, Text


class CutoverStep(Strict):
    """`port`: the baseline's, where it is said it has to be that. `listen`: the address clients
    use, where it is not the one in the baseline's URL. `watch`: how long it is looked at, with a
    completion `every` so often. `then`: the way back, or nothing until promote or rollback."""

    to: str
    port: int | None = Field(None, ge=1, le=65535)
    listen: Text = Field("", pattern=r"^[0-9A-Fa-f.:]*$")
    watch: Annotated[Duration, Field(gt=0)] = 300.0
    every: Annotated[Duration, Field(gt=0)] = 10.0
    max_errors: int = Field(0, ge=0)
    then: Literal["back", "stay"] = "back"

    @model_validator(mode="after")
    def _often(self) -> CutoverStep:
        if self.every > self.watch:
            raise ValueError("!watch is shorter than every: no completion would be asked for")
        return self

    @property
    def stays(self) -> bool:
        return self.then == "stay"
