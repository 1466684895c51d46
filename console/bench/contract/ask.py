"""Asks a server one case of a contract, and gives its answer as facts.

Every request has a deadline over the whole exchange. A server that refuses what a case asks for
does not offer it, which is a fact to compare like any other. One that refuses for another reason,
like a missing key, leaves it unknown.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from console.bench.benchmark import fetch_json, model_of
from console.bench.client import PATHS, endpoint
from console.bench.contract import answer as read
from console.bench.contract.answer import FITS, REFUSED, SILENT, UNKNOWN, Answer, Message, Tree
from console.bench.sse import json_object
from console.common.text import one_line
from console.host import matching
from console.runtime.probe import ProbeError, Reply, error_words, fetch, refusal

BODY_LIMIT = 8 * 2**20
MAX_CONTEXT = 2_000_000
"""Tokens of context for which a prompt that is too long is made."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One question to a server. `ask` is what the file says of it, as plain JSON."""

    id: str
    kind: str
    ask: Mapping[str, Any]
    timeout_s: float = 120.0

    @property
    def group(self) -> str:
        return KINDS[self.kind].group

    @property
    def digest(self) -> str:
        """Names what is asked: answers to different questions are not compared."""
        question = json.dumps([self.kind, dict(self.ask)], sort_keys=True)
        return hashlib.sha256(question.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Server:
    """A server, as far as a request to it has to know: `context` are its tokens, if it says so."""

    url: str
    model: str = ""
    engine: str = ""
    build: str = ""
    context: int | None = None


def look(url: str, model: str = "") -> Server:
    """What the server says of itself; never raises."""
    props = fetch_json(url, "/props")
    info = fetch_json(url, "/get_server_info") if not props else {}
    rows = fetch_json(url, "/v1/models").get("data")
    first = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}
    settings = props.get("default_generation_settings")
    sizes = (
        settings.get("n_ctx") if isinstance(settings, dict) else None,
        first.get("max_model_len"), info.get("context_length"),
    )  # fmt: skip
    context = next((size for size in sizes if type(size) is int and 0 < size <= MAX_CONTEXT), None)
    owner = "llama.cpp" if props else one_line(str(first.get("owned_by") or ""), 40)
    name = model or model_of(url) or str(props.get("model_alias") or "")
    return Server(url, name, owner, one_line(str(props.get("build_info") or ""), 80), context)


GATEWAY_TIMEOUT = 504
"""The server behind a proxy gave no answer."""
OF_NO_CASE = frozenset({401, 402, 403, 407, 408, 425, 429, 502, 503})
"""What a server or a proxy says of the client or of a moment, and not of what it offers."""
LACKS = frozenset({405, 501})
_NO_MODEL = re.compile(r"\bmodel\b.{0,200}(?:not|n't)\b|(?:no such|unknown) model\b", re.IGNORECASE)
"""In the words of a 404: the path is there, and the model is not."""
_NO_KEY = re.compile(r"api[-_ ]?key|authenti|authoriz|credential|log ?in\b", re.IGNORECASE)
_LACKS = re.compile(
    r"not (?:yet )?(?:support|implement|enabl|allow|permit|available)"
    r"|(?:does|do)(?: not|n't) (?:support|accept|allow)|unsupported|unrecogni[sz]ed"
    r"|unknown (?:field|param|arg|name)|unexpected keyword"
    r"|extra (?:inputs|fields)|requires? |must be set|start it with|disabled|chat template",
    re.IGNORECASE,
)
"""What refusals say of something that a server does not take, or only with another option."""


def ask(server: Server, case: Case) -> Answer:
    """Ask one case. Never raises: what went wrong is in the answer."""
    return KINDS[case.kind].ask(server, case)


# -- requests --------------------------------------------------------------------------------------


def _send(server: Server, case: Case, path: str, body: bytes | None) -> Reply | Answer:
    headers = {"Content-Type": "application/json"} if body is not None else None
    try:
        reply = fetch(
            endpoint(server.url, path), body=body, timeout_s=case.timeout_s, limit=BODY_LIMIT,
            headers=headers,
        )  # fmt: skip
    except ProbeError as error:
        return Answer(SILENT, one_line(str(error), 200))
    if reply.status == GATEWAY_TIMEOUT:
        return Answer(SILENT, _words(reply))
    if 300 <= reply.status < 400 or reply.status in OF_NO_CASE:
        return _unknown(reply)
    return reply


def _words(reply: Reply) -> str:
    return f"HTTP {reply.status} {error_words(reply.body)}".strip()


def _unknown(reply: Reply) -> Answer:
    """An answer that leaves open what the server offers, and what it means."""
    meaning = refusal(reply.status, error_words(reply.body))
    if reply.status == 200:
        meaning = "it answers something else"
    return Answer(UNKNOWN, f"{meaning}: {_words(reply)}" if meaning else _words(reply))


def _refused(reply: Reply, case: Case) -> Answer:
    """What a refusal tells: that the server lacks what the case asks for, where it says so."""
    kind, words, status = KINDS[case.kind], error_words(reply.body), reply.status
    if status == 404:
        lacks = kind.of_path or not _NO_MODEL.search(words)
    elif _NO_KEY.search(words):
        lacks = False
    else:
        named = kind.named_by and re.search(kind.named_by, words, re.IGNORECASE)
        lacks = status in LACKS or bool(named or _LACKS.search(words))
    return Answer(REFUSED, _words(reply)) if lacks else _unknown(reply)


def _body(server: Server, case: Case, more: Mapping[str, Any]) -> Tree:
    """A greedy request with the case's prompt or messages."""
    question = case.ask
    talk = question.get("messages") or [{"role": "user", "content": question.get("prompt", "")}]
    if question.get("endpoint") == "completions":
        talked: Tree = {"prompt": question.get("prompt", "")}
    else:
        talked = {"messages": talk}
    body = {
        "model": server.model or "default",
        **talked,
        "temperature": 0,
        "seed": SEED,
        "max_tokens": question.get("max_tokens", 24),
        "stream": bool(question.get("stream")),
    }
    if server.engine == "llama.cpp":  # where a prompt begins in a cache may change its answer
        body["cache_prompt"] = False
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return body | dict(more)


def _talk(server: Server, case: Case, more: Mapping[str, Any]) -> Message | Answer:
    """The message that a server answers with, or why there is none."""
    plain = case.ask.get("endpoint") == "completions"
    path = PATHS["completions" if plain else "chat"]
    body = _body(server, case, more)
    reply = _send(server, case, path, json.dumps(body).encode())
    if isinstance(reply, Answer):
        return reply
    if reply.status != 200:
        return _refused(reply, case)
    message = (read.streamed if body["stream"] else read.whole)(reply.body)
    return message or _refused(reply, case)


def _answer(server: Server, case: Case) -> Answer:
    """Greedy, and with the probabilities of its tokens where the server gives them."""
    plain = case.ask.get("endpoint") == "completions"
    reply = _talk(server, case, {} if plain else {"logprobs": True, "top_logprobs": 1})
    if isinstance(reply, Answer) and reply.state != SILENT and not plain:
        reply = _talk(server, case, {})
    if isinstance(reply, Answer):
        return reply
    return Answer(content=read.content_of(reply), tokens=tuple(reply.tokens))


def _tools(server: Server, case: Case) -> Answer:
    tools = [{"type": "function", "function": dict(tool)} for tool in case.ask["tools"]]
    more: Tree = {"tools": tools, "tool_choice": case.ask.get("choice", "auto")}
    if case.ask.get("parallel"):
        more["parallel_tool_calls"] = True
    reply = _talk(server, case, more)
    if isinstance(reply, Answer):
        return reply
    schemas = {str(tool.get("name")): tool.get("parameters") or {} for tool in case.ask["tools"]}
    form, content = read.called(reply, schemas)
    return Answer(form=form, content=content)


def _object(server: Server, case: Case) -> Answer:
    schema = case.ask["schema"]
    wanted = {"name": "answer", "strict": True, "schema": schema}
    reply = _talk(server, case, {"response_format": {"type": "json_schema", "json_schema": wanted}})
    if isinstance(reply, Answer):
        return reply
    why = read.unfit(reply.content, schema)
    content = read.content_of(reply) if why else {"values": read.canonical(reply.content)}
    return Answer(form={"object": why or FITS}, content=content)


def _grammar(server: Server, case: Case) -> Answer:
    reply = _talk(server, case, {"grammar": case.ask["grammar"]})
    if isinstance(reply, Answer):
        return reply
    try:
        [fits] = matching.quick(case.ask["matches"], [reply.content], whole=True)
        form = {"text": FITS if fits is not None else "does not fit the grammar"}
    except matching.TooSlow as error:
        form = {"text": str(error)}
    return Answer(form=form, content=read.content_of(reply))


def _reasoning(server: Server, case: Case) -> Answer:
    reply = _talk(server, case, {})
    if isinstance(reply, Answer):
        return reply
    return Answer(form={"reasoning": read.thought(reply)}, content=read.content_of(reply))


def _stop(server: Server, case: Case) -> Answer:
    words = list(case.ask["words"])
    reply = _talk(server, case, {"stop": words})
    if isinstance(reply, Answer):
        return reply
    there = any(word in reply.content for word in words)
    return Answer(form={"finish": reply.finish, "stop word in the text": there})


def _usage(server: Server, case: Case) -> Answer:
    reply = _talk(server, case, {})
    return reply if isinstance(reply, Answer) else Answer(form=read.counted(reply))


def _page(server: Server, case: Case) -> Answer:
    """Fields of a page that describes the server, like /props."""
    reply = _send(server, case, case.ask["path"], None)
    if isinstance(reply, Answer):
        return reply
    data = json_object(reply.body) if reply.status == 200 else None
    if data is None:
        return _refused(reply, case)
    fields: Mapping[str, str] = case.ask["fields"]
    return Answer(form={name: read.found_at(data, path) for name, path in fields.items()})


def _request(server: Server, case: Case) -> Answer:
    """A request that is not as it should be, and the status and kind of error that it gets."""
    if case.ask.get("too_long"):
        if server.context is None:
            page = _send(server, case, "/props", None)  # which may want a key
            if isinstance(page, Reply) and (page.status != 200 or not json_object(page.body)):
                page = _refused(page, case)
            if isinstance(page, Answer) and page.state != REFUSED:
                return page
            return Answer(REFUSED, "the server does not say how long its context is")
        body = json.dumps(_body(server, case, {
            "messages": [{"role": "user", "content": " a" * (server.context + 64)}],
        }))  # fmt: skip
    elif "raw" in case.ask:
        body = case.ask["raw"]
    else:
        body = json.dumps(_body(server, case, case.ask["body"]))
    reply = _send(server, case, case.ask.get("path", PATHS["chat"]), body.encode())
    if isinstance(reply, Answer):
        return reply
    is_page = reply.status == 200 and reply.body.lstrip()[:1] == b"<"
    if is_page or (reply.status >= 400 and _NO_KEY.search(error_words(reply.body))):
        return _unknown(reply)
    kind = "none" if reply.status == 200 else read.error_kind(reply.body)
    return Answer(form={"status": reply.status, "error": kind})


class CaseKind(NamedTuple):
    """One kind of case: what it tells about (tools, schema, protocol or answers) and how it is
    asked. `named_by`: how a refusal names the parameter that it is about, as a pattern; `of_path`:
    it asks for the path itself, so that a 404 says that there is none."""

    group: Literal["tools", "schema", "protocol", "answers"]
    ask: Callable[[Server, Case], Answer]
    named_by: str = ""
    of_path: bool = False


KINDS = {
    "tools": CaseKind("tools", _tools, "tool"),
    "object": CaseKind("schema", _object, "response_format|schema|grammar|guided|structured"),
    "grammar": CaseKind("schema", _grammar, "grammar"),
    "answer": CaseKind("answers", _answer),
    "reasoning": CaseKind("protocol", _reasoning),
    "stop": CaseKind("protocol", _stop, "stop"),
    "usage": CaseKind("protocol", _usage, "stream_options|usage"),
    "page": CaseKind("protocol", _page, of_path=True),
    "request": CaseKind("protocol", _request),
}
"""Every kind of case, by its key in a file of cases."""
