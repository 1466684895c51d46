"""ik_llama.cpp where its server and its llama-bench differ from llama.cpp's.

As read in its sources, `examples/server/` (server.cpp, server-task.cpp, server-context.cpp) and
`examples/llama-bench/llama-bench.cpp`: it forked in 2024 and kept what was then said of slots and
health. Only what the stand-in's llama.cpp answers is put into its form; endpoints of its own beyond
these are missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.rehearsal.inside.dialect import CHAT, Tree

NAME = "ik_llama.cpp"
_NAMED = re.compile(r"(?<![a-z])ik[-_.]?llama", re.IGNORECASE)
_NOT_SAID = {"system_fingerprint", "prompt_progress"}
TIMINGS = (
    "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
    "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second",
)  # fmt: skip
PROCESSING = 1
"""`SLOT_STATE_PROCESSING` of its server; 0 is idle."""

VALUED = frozenset({
    "-m", "--model", "-p", "--n-prompt", "-n", "--n-gen", "-pg", "-gp", "-b", "--batch-size",
    "-ub", "--ubatch-size", "-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "-t", "--threads",
    "-tgb", "--threads-gen-batch", "-ngl", "--n-gpu-layers", "-rpc", "--rpc", "-sm", "--split-mode",
    "-mg", "--main-gpu", "-nkvo", "--no-kv-offload", "--numa", "-fa", "--flash-attn", "-mla",
    "--mla-use", "--mla-attn", "-amb", "--attention-max-batch", "--attn-max-batch", "-gr",
    "--graph-reuse", "-ser", "--smart-expert-reduction", "-mmp", "--mmap", "-embd", "--embeddings",
    "-ts", "--tensor-split", "-r", "--repetitions", "-o", "--output", "-oe", "--output-err", "-w",
    "--warmup", "-rtr", "--run-time-repack", "-cuda", "--cuda-params", "-mqkv", "--merge-qkv",
    "-muge", "--merge-up-gate-exps", "-sas", "--scheduler-async", "--fit", "--fit-margin",
    "--max-gpu", "-rcache", "--rope-cache", "-thp", "--transparent-huge-pages", "-fmoe",
    "--fused-moe", "-ger", "--grouped-expert-routing", "-no-fug", "--no-fused-up-gate", "-no-ooae",
    "--no-offload-only-active-experts", "-ot", "--override-tensor", "--n-cpu-moe",
    "--print-overrides",
})  # fmt: skip
"""Options of its llama-bench; each wants a value, also those that are switches of its server."""
BARE = frozenset({"-h", "--help", "-v", "--verbose", "--defer-experts"})


def named(image: str) -> bool:
    """Whether an image's name, or a program's path, says that it is ik_llama.cpp."""
    return _NAMED.search(image) is not None


def engine(image: str) -> str:
    """The engine that such a program is of."""
    return NAME if named(image) else "llama.cpp"


def refused(arguments: Sequence[str]) -> str:
    """What its llama-bench says of arguments that it does not take; "" for good ones.

    Long options may have `_` for `-`, as there.
    """
    words = iter(arguments)
    for word in words:
        name = word.replace("_", "-") if word.startswith("--") else word
        if name in BARE:
            continue
        if name not in VALUED or next(words, None) is None:
            return f"error: invalid parameter for argument: {word}"
    return ""


def bench_entry(entry: Tree) -> Tree:
    """A result of llama-bench with the fields of its own: no depth, and the test by name."""
    kind = f"pp{entry['n_prompt']}" if entry["n_prompt"] else f"tg{entry['n_gen']}"
    kept = {key: value for key, value in entry.items() if key not in ("n_depth", "backends")}
    return {**kept, "cuda": True, "fused_moe": True, "test": kind}


@dataclass(frozen=True, slots=True)
class Llama:
    """llama.cpp as it is."""

    def answer(self, path: str, reply: Any) -> Any:
        """The answer to a request that is not streamed."""
        return reply

    def event(self, path: str, chunk: Tree) -> Tree:
        """One event of a streamed answer."""
        return chunk

    def refusal(self, status: int, words: str) -> Tree:
        """An error's body."""
        return {"error": {"code": status, "message": words, "type": "server_error"}}


@dataclass(frozen=True, slots=True)
class IkLlama(Llama):
    """Its server: `context` in tokens, of all slots together."""

    name: str
    path: str
    context: int

    def answer(self, path: str, reply: Any) -> Any:
        if path == "/slots" and isinstance(reply, list):
            return [self._slot(slot) for slot in reply]
        if not isinstance(reply, dict):
            return reply
        if path == "/health" and reply.get("status") == "ok":
            return {"status": "ok", "slots_idle": 1, "slots_processing": 0}
        if path == "/props":
            kept = {key: value for key, value in reply.items() if key != "build_info"}
            return {"system_prompt": "", "model_name": self.name, **kept, "n_ctx": self.context}
        if path in ("/v1/models", "/models"):
            card = {"id": self.name, "object": "model", "owned_by": "llamacpp",
                    "max_model_len": self.context}  # fmt: skip
            return {"object": "list", "data": [card]}
        return self._translate(reply)

    def event(self, path: str, chunk: Tree) -> Tree:
        """A chat that its limit ended says `stop` here, too."""
        made = self._translate(chunk)
        if path == CHAT:
            made["choices"] = [
                {**choice, "finish_reason": "stop"}
                if choice.get("finish_reason") == "length"
                else choice
                for choice in made.get("choices") or ()
            ]
        return made

    def _translate(self, reply: Tree) -> Tree:
        made = {key: value for key, value in reply.items() if key not in _NOT_SAID}
        if isinstance(reply.get("timings"), dict):
            made["timings"] = self._timings(reply["timings"])
        return made

    def _timings(self, timings: Tree) -> Tree:
        """Without the count of cached tokens, which is in usage alone."""
        past = sum(int(timings.get(key) or 0) for key in ("cache_n", "prompt_n", "predicted_n"))
        kept = {key: timings[key] for key in TIMINGS if key in timings}
        return {**kept, "n_ctx": self.context, "n_past": past}

    def _slot(self, slot: Tree) -> Tree:
        """A number says what a slot does; `next_token` is no list."""
        made = {key: value for key, value in slot.items() if key != "is_processing"}
        after = slot.get("next_token")
        made["next_token"] = (after[0] if after else {}) if isinstance(after, list) else after
        return {**made, "state": PROCESSING if slot.get("is_processing") else 0}
