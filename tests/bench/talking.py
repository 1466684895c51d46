"""A stand-in that answers a whole contract as llama.cpp, vLLM or SGLang does; each of its faculties
can be changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from console.rehearsal.demo import passage
from tests.runtime.serving import Quiet, at_work

Tree = dict[str, Any]
CONTEXT = 512
TAIL = " ".join(passage.SENTENCES)
"""What every answer goes on with, so that none is a loop."""


@dataclass
class Talk:
    """What a server is, and what it can do."""

    engine: str = "llama.cpp"
    template: str = "{% for m in messages %}{{ m.content }}{% endfor %}" * 3
    words: str = "the sea is wide and the night is long "
    tools: str = "called"
    """`called`, `ignored`, `refused`; `one`: never two at once; `broken`: arguments do not fit."""
    schema: bool = True
    thinks: str = "apart"
    """`apart`, `text` or `never`."""
    stops: bool = True
    usage: bool = True
    unknown: int = 200
    """The status of a request with an unknown field."""
    logprobs: bool = True
    varies: int = 0
    """Every so many-th answer to a prompt has other words."""
    silent: bool = False
    """Takes requests and answers none."""
    closed: tuple[int, str] | None = None
    """Status and body of every answer, whatever is asked."""
    seen: list[Tree] = field(default_factory=list)

    @property
    def reasoning_field(self) -> str:
        return "reasoning" if self.engine == "vllm" else "reasoning_content"

    def pages(self) -> dict[str, Tree]:
        card: Tree = {"id": "m", "object": "model", "owned_by": self.engine}
        if self.engine == "llama.cpp":
            settings = {"n_ctx": CONTEXT}
            props = {
                "chat_template": self.template, "default_generation_settings": settings,
                "bos_token": "<s>", "eos_token": "</s>", "build_info": "b1",
            }  # fmt: skip
            return {"/props": props, "/v1/models": {"data": [card]}}
        found = {"/v1/models": {"data": [card | {"max_model_len": CONTEXT}]}}
        if self.engine == "sglang":
            found["/get_server_info"] = {"context_length": CONTEXT}
        return found

    def error(self, status: int, words: str, kind: str = "invalid_request_error") -> Tree:
        told = {"message": words, "type": kind, "code": status}
        if self.engine == "sglang":
            return {"object": "error", **told, "type": "BadRequestError"}
        return {"error": told if self.engine == "llama.cpp" else told | {"type": "BadRequestError"}}

    def refusal(self, raw: bytes) -> tuple[int, Tree] | None:
        """Status and body of a request that is not answered."""
        try:
            body = json.loads(raw)
        except ValueError:
            return 400, self.error(400, "not JSON")
        if not isinstance(body.get("messages", []), list) or not {"messages", "prompt"} & {*body}:
            return 400, self.error(400, "no messages")
        if not isinstance(body.get("temperature", 0), int | float):
            return 400, self.error(400, "temperature is no number")
        if len(json.dumps(body.get("messages", ""))) > 2 * CONTEXT:
            return 400, self.error(400, "too long", "exceed_context_size_error")
        if "omni_unknown_field" in body and self.unknown != 200:
            return self.unknown, self.error(self.unknown, "unknown field")
        if self.engine == "vllm" and body.get("model") not in ("m", "default"):
            return 404, self.error(404, "no such model")
        if body.get("tools") and self.tools == "refused":
            return 500, self.error(500, "tools param requires --jinja flag", "server_error")
        return None

    def answer(self, body: Tree) -> Tree:
        """The assistant's message, with `finish` and `tokens`."""
        self.seen.append(body)
        message: Tree = {"role": "assistant", "content": "", "finish": "length"}
        names = [one["function"]["name"] for one in body.get("tools") or ()]
        prompt = json.dumps(body.get("messages") or body.get("prompt"))
        if names and self.tools not in ("ignored", "refused") and body["tool_choice"] != "none":
            several = body.get("parallel_tool_calls") and self.tools != "one"
            count = 3 if several else 1
            calls = [_call(names[-1], at, self.tools == "broken") for at in range(count)]
            return message | {"content": None, "tool_calls": calls, "finish": "tool_calls"}
        text = self._text(body)
        if self.thinks != "never" and "Think first" in prompt:
            if self.thinks == "apart":
                message[self.reasoning_field] = "seven times thirteen"
            else:
                text = f"<think>seven times thirteen</think>{text}"
        if body.get("stop") and self.stops:
            text = text[: min(text.index(one) for one in body["stop"] if one in text)]
            message["finish"] = "stop"
        return message | {"content": text}

    def _text(self, body: Tree) -> str:
        if body.get("response_format") and self.schema:
            schema = body["response_format"]["json_schema"]["schema"]
            return json.dumps({key: _example(one) for key, one in schema["properties"].items()})
        if body.get("grammar") and self.engine == "llama.cpp":
            return "123" if "0-9" in body["grammar"] else "yes"
        varied = self.varies and self.seen.count(body) % self.varies == 0
        words = "a quite other answer " if varied else self.words
        # one letter or a line's end again and again is garbage to the end
        tail = TAIL if len(words) > 1 else words * len(TAIL)
        return (words * 3 + tail)[: 4 * body["max_tokens"]]

    def counted(self, body: Tree) -> Tree:
        size = len(json.dumps(body.get("messages") or body.get("prompt"))) + len(self.template)
        return {"prompt_tokens": size, "completion_tokens": 4, "total_tokens": size + 4}


def _call(name: str, at: int, broken: bool) -> Tree:
    given: Tree = {
        "get_weather": {"city": ("Oslo", "Rome", "Cairo")[at]}, "add": {"a": 19, "b": 23},
        "set_light": {"state": "bright"},
    }[name]  # fmt: skip
    arguments = json.dumps({"place": 1} if broken else given)
    return {"id": f"call-{at}", "type": "function",
            "function": {"name": name, "arguments": arguments}}  # fmt: skip


def _example(schema: Tree) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    return {"string": "Ada", "integer": 36, "boolean": True}[schema["type"]]


class _Handler(Quiet):
    server: _Server

    def do_GET(self) -> None:
        self._wait()
        if self._closed():
            return
        found = self.server.talk.pages().get(self.path)
        self.whole(200 if found else 404, json.dumps(found or {"error": {"type": "no"}}).encode())

    def do_POST(self) -> None:
        raw, talk = self.rfile.read(int(self.headers["Content-Length"])), self.server.talk
        self._wait()
        if self._closed():
            return
        if self.path not in ("/v1/chat/completions", "/v1/completions"):
            self.whole(404, json.dumps(talk.error(404, "no such path", "not_found_error")).encode())
            return
        if (refused := talk.refusal(raw)) is not None:
            self.whole(refused[0], json.dumps(refused[1]).encode())
            return
        body = json.loads(raw)
        message = talk.answer(body)
        if body.get("stream"):
            self.whole(200, b"".join(_stream(talk, body, message)), "text/event-stream")
            return
        finish, chat = message.pop("finish"), "messages" in body
        choice: Tree = {"index": 0, "finish_reason": finish}
        choice |= {"message": message} if chat else {"text": message["content"]}
        if body.get("logprobs") and talk.logprobs:
            choice["logprobs"] = {"content": _tokens(message.get("content") or "")}
        told = {"usage": talk.counted(body)} if talk.usage else {}
        with suppress(ConnectionError):  # the client did not wait for it
            self.whole(200, json.dumps({"choices": [choice], **told}).encode())

    def _closed(self) -> bool:
        if (closed := self.server.talk.closed) is not None:
            self.whole(closed[0], closed[1].encode())
        return closed is not None

    def _wait(self) -> None:
        if self.server.talk.silent:
            self.server.over.wait()


def _tokens(text: str) -> list[Tree]:
    words = text.split(" ")
    return [{"token": f"{word} ", "logprob": -0.1 * (at + 1)} for at, word in enumerate(words)]


def _stream(talk: Talk, body: Tree, message: Tree) -> Iterator[bytes]:
    """The message in pieces of a few characters, tool calls as deltas by their index."""

    def event(data: Tree) -> bytes:
        return f"data: {json.dumps(data)}\n\n".encode()

    def delta(finish: str | None = None, **fields: Any) -> bytes:
        return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})

    yield delta(role="assistant", content=None)
    for name in (talk.reasoning_field, "content"):
        text = message.get(name) or ""
        yield from (delta(**{name: text[at : at + 3]}) for at in range(0, len(text), 3))
    for at, call in enumerate(message.get("tool_calls") or ()):
        given = call["function"]["arguments"]
        function = {"name": call["function"]["name"], "arguments": ""}
        yield delta(tool_calls=[{**call, "index": at, "function": function}])
        for start in range(0, len(given), 3):
            piece = {"index": at, "function": {"arguments": given[start : start + 3]}}
            yield delta(tool_calls=[piece])
    yield delta(message["finish"])
    if talk.usage:
        yield event({"choices": [], "usage": talk.counted(body)})
    yield b"data: [DONE]\n\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, talk: Talk) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.talk, self.over = talk, threading.Event()


@contextmanager
def talking(talk: Talk) -> Iterator[str]:
    """The address of a server that answers so."""
    server = _Server(talk)
    with at_work(server):
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.over.set()
