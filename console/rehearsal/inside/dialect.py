"""What each engine's HTTP server takes and sends, as data; llama.cpp's answers put into that form.

Only what was read in the engines' sources is here; their other endpoints are missing (404), like
/metrics. SGLang: `entrypoints/http_server.py` and `entrypoints/openai/` (protocol, usage_processor,
serving_chat, serving_completions). vLLM: `entrypoints/openai/` (protocol, completion/serving) and
`entrypoints/serve/tokenize/protocol.py`. KTransformers: `server/api/openai/` (endpoints/chat,
legacy/completions), `server/schemas/` and `configs/config.yaml`. All three ignore a key that they
do not know, and listen only once the model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]
"""A JSON object."""

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
DONE = "[DONE]"
SAMPLING = frozenset({
    "model", "stream", "stream_options", "temperature", "top_p", "max_tokens", "seed", "stop",
    "n", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_k", "min_p",
    "ignore_eos", "response_format",
})  # fmt: skip
"""Keys of a request that SGLang and vLLM know and that mean the same to llama.cpp."""
TALK = frozenset({"messages", "tools", "tool_choice", "top_logprobs", "max_completion_tokens"})
KT = frozenset({"model", "stream", "temperature", "top_p", "max_tokens", "max_completion_tokens"})
COUNTS = ("prompt_tokens", "total_tokens", "completion_tokens")
ENVELOPE = ("id", "object", "created", "model", "choices")
CHOICE = ("index", "delta", "text", "message", "finish_reason")


@dataclass(frozen=True, slots=True)
class Dialect:
    """`keys`: what a request may say, by path; `required`: without these it is refused. `choice`,
    `usage`: fields that the engine adds, without a value. `empty`: paths that answer 200 without a
    body. `reports`: the option that makes it report cached tokens, or "". `always`: it sends usage
    unasked, as its last but one chunk. `checks`: it refuses another model's name. `refuses`: the
    status of a request that is not well formed; `nested`: an error is inside `error`.
    """

    engine: str
    port: int
    context: str
    keys: Mapping[str, frozenset[str]]
    required: Mapping[str, tuple[str, ...]]
    choice: Mapping[str, Any]
    usage: Mapping[str, Any]
    empty: tuple[str, ...] = ()
    tokenize: tuple[str, ...] = ()
    reports: str = ""
    always: bool = False
    checks: bool = False
    refuses: int = 400
    nested: bool = False


SGLANG = Dialect(
    "sglang", 30000, "--context-length",
    keys={CHAT: SAMPLING | TALK, PLAIN: SAMPLING | {"prompt", "echo"}},
    required={CHAT: ("messages",), PLAIN: ("prompt",)},
    choice={"logprobs": None, "matched_stop": None},
    usage={"prompt_tokens_details": None, "reasoning_tokens": 0},
    empty=("/health", "/health_generate"), tokenize=("/tokenize", "/v1/tokenize"),
    reports="--enable-cache-report",
)  # fmt: skip
VLLM = Dialect(
    "vllm", 8000, "--max-model-len",
    keys=SGLANG.keys, required=SGLANG.required,
    choice={"logprobs": None, "stop_reason": None}, usage={"prompt_tokens_details": None},
    empty=("/health", "/ping"), tokenize=("/tokenize",),
    reports="--enable-prompt-tokens-details", checks=True, nested=True,
)  # fmt: skip
KTRANSFORMERS = Dialect(
    "ktransformers", 10002, "--cache_lens",
    keys={
        CHAT: KT | {"messages", "tools", "tool_choice", "frequency_penalty", "presence_penalty"},
        PLAIN: KT | {"prompt"},
    },
    required={CHAT: ("messages", "model"), PLAIN: ("prompt", "model")},
    choice={"logprobs": None}, always=True, refuses=422,
    usage={"prompt_tokens_details": None, "completion_tokens_details": None},
)  # fmt: skip
DIALECTS = {
    "sglang.launch_server": SGLANG, "vllm": VLLM, "ktransformers.server.main": KTRANSFORMERS,
}  # fmt: skip
"""The dialect of each program that a playbook starts; any other one speaks llama.cpp's own."""
KT_NAME = "DeepSeek-Coder-V2-Instruct"
"""What KTransformers' configs/config.yaml calls any model without --model_name."""


@dataclass(frozen=True, slots=True)
class Server:
    """One server: `name` is what it calls its model, `context` its tokens, `cached`: it reports
    the cached ones."""

    dialect: Dialect
    name: str
    path: str
    context: int
    cached: bool = False

    def documents(self) -> dict[str, Tree]:
        """What a GET finds, by path."""
        if self.dialect is KTRANSFORMERS:
            listed = {"data": [{"id": self.name, "name": self.name}], "object": "list"}
            return {"/v1/models": listed}
        card = {
            "id": self.name, "object": "model", "owned_by": self.dialect.engine, "parent": None,
            "root": self.path, "max_model_len": self.context,
        }  # fmt: skip
        answers_by_path: dict[str, Tree] = {"/v1/models": {"object": "list", "data": [card]}}
        version = {"version": "0.stand.in"}
        if self.dialect is VLLM:
            return answers_by_path | {"/version": version}
        model = {"model_path": self.path, "tokenizer_path": self.path, "is_generation": True,
                 "preferred_sampling_params": None}  # fmt: skip
        served = {"model_path": self.path, "served_model_name": self.name,
                  "context_length": self.context, **version}  # fmt: skip
        return answers_by_path | {"/get_model_info": model, "/get_server_info": served}

    def unfit(self, path: str, body: object) -> tuple[int, str]:
        """Why a request is refused, with the status; (0, "") for a good one."""
        if not isinstance(body, dict):
            return self.dialect.refuses, "the body is not a JSON object"
        for key in self.dialect.required[path]:
            if body.get(key) is None:
                return self.dialect.refuses, f"Field required: body.{key}"
        model = body.get("model")
        if self.dialect.checks and model not in (None, "", self.name):
            return 404, f"The model `{model}` does not exist."
        return 0, ""

    def refusal(self, status: int, words: str) -> Tree:
        """An error's body."""
        if self.dialect is KTRANSFORMERS:
            return {"detail": words}
        kind = {404: "NotFoundError", 500: "InternalServerError"}.get(status, "BadRequestError")
        error = {"message": words, "type": kind, "param": None, "code": status}
        return {"error": error} if self.dialect.nested else {"object": "error", **error}

    def passed_on(self, path: str, body: Tree) -> Tree:
        """The request as llama.cpp gets it: what the engine knows, and a count with every chunk."""
        known = {key: body[key] for key in body.keys() & self.dialect.keys[path]}
        known.pop("stream_options", None)
        if body.get("stream"):
            known |= {"stream_options": {"include_usage": True}, "timings_per_token": True}
        return known

    def whole(self, path: str, answer: Tree) -> Tree:
        """An answer that is not streamed."""
        made = self._chunk(answer)
        usage = self._usage(answer.get("usage"))
        return {**made, "usage": None if self._silent(path) else usage}

    def stream(self, path: str, body: Tree, events: Iterator[Tree]) -> Iterator[Tree]:
        """The chunks of a streamed answer, from llama.cpp's."""
        if not self.dialect.always:
            return self._usage_asked(body.get("stream_options"), events)
        return self._bare(events) if self._silent(path) else self._usage_unasked(events)

    def _silent(self, path: str) -> bool:
        """KTransformers counts nothing at the plain endpoint."""
        return self.dialect is KTRANSFORMERS and path == PLAIN

    def _usage_asked(self, options: object, events: Iterator[Tree]) -> Iterator[Tree]:
        """SGLang and vLLM: usage at the end, and with every chunk, each only if asked for."""
        stream_options = options if isinstance(options, dict) else {}
        at_end = bool(stream_options.get("include_usage"))
        always = at_end and bool(stream_options.get("continuous_usage_stats"))
        for event in events:
            if event.get("choices"):
                usage = self._usage(_running(event)) if always else None
                yield self._chunk(event) | ({"usage": usage} if usage else {})
            elif event.get("usage") and at_end:
                yield self._chunk(event) | {"usage": self._usage(event["usage"])}

    def _usage_unasked(self, events: Iterator[Tree]) -> Iterator[Tree]:
        """KTransformers' chat: usage before the last chunk, which always says `stop`."""
        for event in events:
            made = self._chunk(event) | {"service_tier": None, "usage": None}
            if event.get("usage"):
                made["usage"] = self._usage(event["usage"])
                yield made
                end = {"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}
                yield {**made, "choices": [end]}
            elif text_of(event):
                yield made

    def _bare(self, events: Iterator[Tree]) -> Iterator[Tree]:
        """KTransformers' plain endpoint: text alone, in a chat's form."""
        for event in events:
            if text_of(event):
                yield {"choices": [{"delta": {"content": text_of(event)}}]}
        yield {"choices": [{"delta": {"content": ""}, "finish_reason": ""}]}

    def _chunk(self, event: Tree) -> Tree:
        """A chunk with the fields of this engine alone."""
        made = {key: event[key] for key in ENVELOPE if key in event}
        made["choices"] = [self._choice(choice) for choice in event.get("choices") or ()]
        return made

    def _choice(self, choice: Tree) -> Tree:
        made = {key: choice[key] for key in CHOICE if key in choice} | dict(self.dialect.choice)
        delta = made.get("delta")
        if isinstance(delta, dict) and "role" in delta:
            made["delta"] = {**delta, "content": delta.get("content") or ""}
        return made

    def _usage(self, counted: Tree | None) -> Tree | None:
        if not counted:
            return None
        made = {key: counted.get(key) for key in COUNTS} | dict(self.dialect.usage)
        cached = (counted.get("prompt_tokens_details") or {}).get("cached_tokens")
        if self.cached and cached:
            made["prompt_tokens_details"] = {"cached_tokens": cached}
        return made


def _running(event: Tree) -> Tree | None:
    """The counts so far, from llama.cpp's timings; None before the first token."""
    timings = event.get("timings")
    if not isinstance(timings, dict):
        return None
    prompt = int(timings.get("prompt_n") or 0) + int(timings.get("cache_n") or 0)
    made = int(timings.get("predicted_n") or 0)
    return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}


def text_of(event: Tree) -> str:
    """The text of a chunk, of either endpoint."""
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        return str(choice.get("text") or delta.get("content") or "")
    return ""
