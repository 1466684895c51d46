"""What a server's reply to one case says, as facts that can be compared.

`form` is what a program relies on: which tools are called, whether an object has the fields that it
was asked for, the status of an error. `content` are the words themselves, which another
quantization may change.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from console.bench.sse import SseParser, json_object
from console.common.text import clean, one_line

Tree = dict[str, Any]
Token = tuple[str, float]
"""The text of a token, and its probability."""

OFFERED, REFUSED, SILENT = "offered", "not offered", "no answer"
UNKNOWN = "not known"
"""It refuses for a reason that says nothing of what it offers: it wants a key, or has no room."""
UNTOLD = frozenset({SILENT, UNKNOWN})
MAX_TEXT = 64
"""Characters of a value that is kept as it is; a longer one, like a template, is kept as a hash."""
MAX_TOKENS = 4096
THINKING = re.compile(r"<(?:think|thinking|reasoning)>|<\|channel\|>analysis")
APART = ("reasoning_content", "reasoning")
"""The fields in which servers keep the reasoning apart from the answer."""
FITS = "fits"


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply. `state`: offered, not offered, not known or no answer; `why` not, in words that
    are not compared; `tokens`: of the answer, where the server gives their probabilities."""

    state: str = OFFERED
    why: str = ""
    form: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    tokens: Sequence[Token] = ()

    def to_json(self) -> Tree:
        return asdict(self)


def answer_of(data: Any) -> Answer:
    """An answer from its JSON. Raises ValueError."""
    if not isinstance(data, dict) or data.get("state") not in (OFFERED, REFUSED, *UNTOLD):
        raise ValueError("an answer has a state")
    form, content = data.get("form", {}), data.get("content", {})
    tokens = data.get("tokens", [])
    if not (isinstance(form, dict) and isinstance(content, dict) and isinstance(tokens, list)):
        raise ValueError("an answer has form, content and tokens")
    form = {one_line(str(name), 80): value for name, value in form.items()}
    content = {one_line(str(name), 80): value for name, value in content.items()}
    return Answer(
        data["state"], clean(str(data.get("why") or ""), 300), form, content, tuple(_read(tokens))
    )


def _read(tokens: list[Any]) -> Iterator[Token]:
    for token in tokens[:MAX_TOKENS]:
        match token:
            case [str(text), int() | float() as share]:
                try:
                    yield text, float(share)
                except OverflowError:
                    raise ValueError("a probability is a number") from None
            case _:
                raise ValueError("a token is a text and its probability")


@dataclass(frozen=True, slots=True)
class Message:
    """What an assistant said, whether it came as one object or as a stream of deltas."""

    content: str = ""
    reasoning: str = ""
    apart: str = ""
    """The field that the reasoning came in; "" without any."""
    calls: Sequence[Mapping[str, Any]] = ()
    finish: str = ""
    usage: Mapping[str, Any] | None = None
    tokens: Sequence[Token] = ()


def whole(body: bytes) -> Message | None:
    """The message of a reply that is not streamed; None if it is no completion."""
    data = json_object(body)
    choice = _first_choice(data)
    if data is None or choice is None:
        return None
    message = _table(choice.get("message"))
    apart = next((name for name in APART if _text(message.get(name))), "")
    return Message(
        _text(message.get("content")) or _text(choice.get("text")),
        _text(message.get(apart)),
        apart,
        [_call(call) for call in _list(message.get("tool_calls"))],
        _text(choice.get("finish_reason")),
        _usage(data),
        _tokens(choice),
    )


def streamed(body: bytes) -> Message | None:
    """The message that a stream of deltas makes when it is put together; None if there is none."""
    parser = SseParser()
    parts: dict[str, str] = {}
    calls: dict[int, dict[str, str]] = {}
    finish, usage, seen = "", None, False
    tokens: list[Token] = []
    for data in [*parser.feed(body), *parser.close()]:
        event = json_object(data) if data != "[DONE]" else None
        if event is None:
            continue
        usage = _usage(event) or usage
        choice = _first_choice(event)
        if choice is None:
            continue
        seen, delta = True, _table(choice.get("delta"))
        for name in ("content", *APART):
            parts[name] = parts.get(name, "") + _text(delta.get(name))
        parts["content"] += _text(choice.get("text"))
        for call_delta in _list(delta.get("tool_calls")):
            _add(calls, call_delta)
        finish = _text(choice.get("finish_reason")) or finish
        tokens += _tokens(choice)
    if not seen:
        return None
    apart = next((name for name in APART if parts.get(name)), "")
    made = [calls[at] for at in sorted(calls)]
    return Message(parts["content"], parts.get(apart, ""), apart, made, finish, usage, tokens)


def _add(calls: dict[int, dict[str, str]], delta: Any) -> None:
    """One delta of a tool call: name and id come once, the arguments in pieces."""
    given = _call(delta)
    at = delta.get("index") if isinstance(delta, dict) else None
    known = calls.setdefault(at if isinstance(at, int) else 0, dict.fromkeys(given, ""))
    for key, value in given.items():
        known[key] += value


def _call(call: Any) -> dict[str, str]:
    function = _table(_table(call).get("function"))
    given = function.get("arguments")
    text = given if isinstance(given, str) or given is None else json.dumps(given)
    return {
        "id": _text(_table(call).get("id")), "name": _text(function.get("name")),
        "arguments": text or "",
    }  # fmt: skip


def _first_choice(data: Tree | None) -> Tree | None:
    choices = _list((data or {}).get("choices"))
    return choices[0] if choices and isinstance(choices[0], dict) else None


def _usage(data: Tree) -> Tree | None:
    usage = data.get("usage")
    return usage if isinstance(usage, dict) else None


def _tokens(choice: Tree) -> list[Token]:
    """The tokens of a choice with their probabilities, where the server gives them."""
    rows = _list(_table(choice.get("logprobs")).get("content"))
    tokens = []
    for row in rows[:MAX_TOKENS]:
        share = row.get("logprob") if isinstance(row, dict) else None
        if isinstance(share, int | float) and not isinstance(share, bool):
            tokens.append((_text(row.get("token")), _probability(share)))
    return tokens


def _probability(logarithm: float) -> float:
    return round(math.exp(min(0.0, logarithm)), 4) if math.isfinite(logarithm) else 0.0


# -- facts -----------------------------------------------------------------------------------------


def content_of(message: Message) -> Tree:
    """The words of an answer, and why it ended."""
    fields = {"text": message.content, "finish": message.finish}
    return fields | ({"reasoning": message.reasoning} if message.reasoning else {})


def called(message: Message, parameters: Mapping[str, Mapping[str, Any]]) -> tuple[Tree, Tree]:
    """What an answer with tools has: its form, and the values that the model chose.

    `parameters`: the JSON schema of each tool's arguments, by its name.
    """
    calls, ids = message.calls, [call["id"] for call in message.calls]
    form: Tree = {"calls": [call["name"] for call in calls]}
    if not calls:
        return form, content_of(message)
    form["finish"] = message.finish
    misfits = [
        f"{call['name']}: {why}" for call in calls
        if (why := unfit(call["arguments"], parameters.get(call["name"], {})))
    ]  # fmt: skip
    form["arguments"] = "; ".join(misfits) or FITS
    form["ids"] = "one for each call" if all(ids) and len({*ids}) == len(ids) else "missing"
    return form, {"values": [canonical(call["arguments"]) for call in calls]}


def thought(message: Message) -> str:
    """Where the reasoning is: apart, in the text, or nowhere."""
    if message.apart:
        return f"apart, as {message.apart}"
    return "in the text" if THINKING.search(message.content) else "none"


def counted(message: Message) -> Tree:
    """Which counts a reply has; that of the prompt depends on tokenizer and template alone."""
    usage = message.usage
    if usage is None:
        return {"usage": "none"}
    made = usage.get("completion_tokens")
    fine = isinstance(made, int) and not isinstance(made, bool) and made > 0
    return {
        "usage": sorted(name for name, value in usage.items() if isinstance(value, int)),
        "prompt tokens": usage.get("prompt_tokens"),
        "completion tokens": "counted" if fine else "not counted",
    }


def found_at(data: Any, path: str) -> Any:
    """The value at a path of keys and indexes (`data.0.id`), long texts as a hash; None without."""
    for key in path.split("."):
        if isinstance(data, list):
            data = data[int(key)] if key.isdecimal() and int(key) < len(data) else None
        else:
            data = _table(data).get(key)
    text = data if isinstance(data, str) else json.dumps(data, sort_keys=True)
    return data if len(text) <= MAX_TEXT else hashed(text)


def hashed(text: str) -> str:
    """A long text as it is compared and shown: its length, and the beginning of its SHA-256."""
    made = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{len(text)} characters, sha256 {made}"


def error_kind(body: bytes) -> str:
    """What kind of error a refusal names, never its words: they differ between releases."""
    data = json_object(body)
    if data is None:
        return "no JSON object"
    inner = data.get("error")
    error = inner if isinstance(inner, dict) else data
    return _text(error.get("type")) or ("error" if inner is not None else "no error")


def unfit(text: str, schema: Mapping[str, Any]) -> str:
    """Why a text is no JSON of that schema; "" if it is. Of a schema only what contracts use is
    looked at: type, enum, required, properties, additionalProperties and items."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return "not JSON"
    return _misfit(data, schema, "")


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "number": (int, float), "integer": (int,), "null": (type(None),),
}  # fmt: skip


def _misfit(data: Any, schema: Mapping[str, Any], where: str) -> str:
    at = where or "it"
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in TYPES:
        number = isinstance(data, bool) and wanted != "boolean"
        if number or not isinstance(data, TYPES[wanted]):
            return f"{at} is no {wanted}"
    if isinstance(schema.get("enum"), list) and data not in schema["enum"]:
        return f"{at} is none of the values"
    if isinstance(data, dict):
        return _misfit_object(data, schema, where)
    if isinstance(data, list) and isinstance(schema.get("items"), dict):
        parts = (_misfit(element, schema["items"], f"{at}.{n}") for n, element in enumerate(data))
        return next(filter(None, parts), "")
    return ""


def _misfit_object(data: Tree, schema: Mapping[str, Any], where: str) -> str:
    known = _table(schema.get("properties"))
    for key in _list(schema.get("required")):
        if key not in data:
            return f"{key} is missing"
    if schema.get("additionalProperties") is False and (
        more := [k for k in data if k not in known]
    ):
        return f"{clean(str(more[0]), 40)} is not in the schema"
    parts = (
        _misfit(value, known[key], f"{where}.{key}".lstrip("."))
        for key, value in data.items() if isinstance(known.get(key), dict)
    )  # fmt: skip
    return next(filter(None, parts), "")


def canonical(text: str) -> str:
    """JSON in one spelling, so that blanks and the order of keys are no difference."""
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _table(value: object) -> Tree:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
