"""The cases of a contract, as written: what a server is asked, and which of its facts count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from console.bench.contract.ask import KINDS, Case
from console.common.errors import InvalidFile
from console.config.locate import shipped
from console.config.validation import Duration, OneOf, Pattern, Strict, Text, validated
from console.config.yaml import parse, read_text

TITLE = "the contract cannot be used"
HINT = "docs/reference/contract.md describes the format"
SHIPPED = Path("contract") / "shipped.yaml"
"""Our own cases, in the directory of the playbooks."""
Tokens = Annotated[int, Field(ge=1, le=4096)]
Fields = Annotated[dict[str, Text], Field(min_length=1)]
HttpPath = Annotated[Text, Field(pattern=r"^/[\w./-]*$")]


class ChatMessage(Strict):
    role: Literal["system", "user", "assistant"]
    content: Text


class Prompt(Strict):
    """What every question to the model has: one prompt, or a conversation."""

    prompt: Text | None = None
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    max_tokens: Tokens = 24
    stream: bool = False

    @model_validator(mode="after")
    def _exactly_one_prompt(self) -> Prompt:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("!a case has exactly one of prompt or messages")
        return self


class AnswerCase(Prompt):
    """The words of a greedy answer; `completions` asks without the chat template."""

    endpoint: Literal["chat", "completions"] = "chat"

    @model_validator(mode="after")
    def _plain(self) -> AnswerCase:
        if self.endpoint == "completions" and self.messages is not None:
            raise ValueError("!completions takes a prompt, not messages")
        return self


class ToolModel(Strict):
    name: Annotated[str, Field(pattern=r"^[\w-]{1,64}$")]
    description: Text = ""
    parameters: dict[str, Any]


class ToolsCase(Prompt):
    """Which tools are called, and whether their arguments fit."""

    tools: list[ToolModel] = Field(min_length=1, max_length=16)
    choice: Literal["auto", "required", "none"] = "auto"
    parallel: bool = False


class ObjectCase(Prompt):
    """Whether an answer under `response_format` is an object of the schema."""

    schema_: dict[str, Any] = Field(alias="schema")


class GrammarCase(Prompt):
    """Whether an answer under llama.cpp's `grammar` matches a pattern."""

    grammar: Text
    matches: Pattern


class StopCase(Prompt):
    words: list[Text] = Field(min_length=1, max_length=16)


class PageCase(Strict):
    """Fields of a page, by the name that they are told by: `data.0.max_model_len`."""

    path: HttpPath
    fields: Fields


class RequestCase(OneOf):
    """A request that is not as it should be: its status and kind of error. `body` is added to a
    good request, `raw` is sent as it is, `too_long` makes a prompt longer than the context."""

    ONE_OF = ("body", "raw", "too_long")
    REFUSED = "a request is exactly one of body, raw or too_long"

    body: dict[str, Any] | None = None
    raw: Text | None = None
    too_long: Literal[True] | None = None
    path: HttpPath = "/v1/chat/completions"


class CaseModel(OneOf):
    """One case: an `id`, and exactly one kind."""

    ONE_OF = tuple(KINDS)
    REFUSED = f"a case has exactly one of {', '.join(KINDS)}"

    id: str = Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")
    timeout: Annotated[Duration, Field(gt=0, le=1800)] = 120.0
    answer: AnswerCase | None = None
    tools: ToolsCase | None = None
    object: ObjectCase | None = None
    grammar: GrammarCase | None = None
    reasoning: Prompt | None = None
    stop: StopCase | None = None
    usage: Prompt | None = None
    page: PageCase | None = None
    request: RequestCase | None = None

    @property
    def case(self) -> Case:
        kind = next(kind for kind in KINDS if getattr(self, kind) is not None)
        case_model: Strict = getattr(self, kind)
        given = case_model.model_dump(by_alias=True, exclude_defaults=True)
        return Case(self.id, kind, given, self.timeout)


class ContractModel(Strict):
    schema_: Literal["omni.contract/v1"] = Field(alias="schema")
    cases: list[CaseModel] = Field(min_length=1, max_length=500)


def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases of one file. Raises InvalidFile with every problem in it."""
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model = validated(ContractModel, document, document.data)
    seen: set[str] = set()
    for at, case in enumerate(model.cases if model is not None else ()):
        if case.id in seen:
            document.refuse(("cases", at, "id"), f"case '{case.id}' is there twice")
        seen.add(case.id)
    if model is None or document.problems:
        raise InvalidFile(TITLE, sorted(document.problems), HINT)
    return tuple(case_model.case for case_model in model.cases)


def contract_cases(own: Path | None = None) -> Sequence[Case]:
    """Ours, then the operator's own; one of the same id takes the place of ours."""
    cases_by_id = {case.id: case for case in load_cases(shipped() / SHIPPED)}
    return tuple(
        (cases_by_id | {case.id: case for case in (load_cases(own) if own else ())}).values()
    )
