"""The commands of the stand-in image, one function each: `python -m …inside.command NAME ARG…`.

`llama-bench` and `llama-sweep-bench` really measure the tiny model: the engine serves on a loopback
port, and its own timings are the samples. The output has llama.cpp's form.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from console.rehearsal.inside import ik_llama
from console.rehearsal.inside.settings import (
    HOLDS,
    HOLDS_VARIABLE,
    MODEL,
    announce,
    fetched,
    held,
    settings,
    value,
)

MIB = 1 << 20

PORT = 18079
READY_S = 60.0
Sample = tuple[int, float]
"""(tokens, seconds)"""


def llama_server(arguments: Sequence[str]) -> int:
    """Serve; imports happen where needed, because each one takes long under a small quota."""
    from console.rehearsal.inside import server

    return server.main("llama-server", arguments)


def vllm(arguments: Sequence[str]) -> int:
    """`vllm serve MODEL …`."""
    from console.rehearsal.inside import server

    return server.main("vllm", arguments)


def cuobjdump(arguments: Sequence[str]) -> int:
    """The architectures that the build claims, as `--list-elf` prints them."""
    announce("cuobjdump")
    for number, name in enumerate(settings().architectures, 1):
        print(f"ELF file    {number}: stand-in.{number}.{name}.cubin")
    return 0


def nvidia_smi(arguments: Sequence[str]) -> int:
    """`-L` and `--query-gpu=…`, for the scripted cards and their memory in use now."""
    announce("nvidia-smi")
    query = next((argument for argument in arguments if argument.startswith("--query-gpu=")), "")
    if not query:
        for number, card in enumerate(settings().cards):
            print(f"GPU {number}: {card['name']} (UUID: {card['uuid']})")
        return 0
    form = next((argument for argument in arguments if argument.startswith("--format=")), "")
    names = query.partition("=")[2].split(",")
    if "noheader" not in form:
        print(", ".join(names))
    used = held(Path(os.environ.get(HOLDS_VARIABLE, HOLDS)))
    unit = "" if "nounits" in form else " MiB"
    for number, card in enumerate(settings().cards):
        taken = used.get(str(card["uuid"]), 0)
        values = {
            "index": str(number), "name": card["name"], "uuid": card["uuid"],
            "gpu_uuid": card["uuid"], "driver_version": "580.126.09",
            "compute_cap": settings().compute,
            "memory.total": f"{int(card['total']) // MIB}{unit}",
            "memory.used": f"{taken // MIB}{unit}",
            "memory.free": f"{(int(card['total']) - taken) // MIB}{unit}",
        }  # fmt: skip
        print(", ".join(values.get(name.strip(), "[N/A]") for name in names))
    return 0


def entry(arguments: Sequence[str]) -> int:
    """The image's entrypoint: options alone are the server's, anything else is a command."""
    if not arguments or arguments[0].startswith("-"):
        return (vllm if "vllm" in settings().image else llama_server)(arguments)
    try:
        os.execvp(arguments[0], list(arguments))
    except OSError as error:
        print(f"stand-in: {arguments[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127


@contextmanager
def served() -> Iterator[None]:
    """Yield the engine, running for as long as the block. Raises RuntimeError if it fails."""
    argv = [sys.executable, "-m", "console.rehearsal.demo.engine", "--model", MODEL,
            "--port", str(PORT), "--cache-ram", "0"]  # fmt: skip
    child = subprocess.Popen(argv, stdout=2, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + READY_S
        while fetched(PORT, "/health") is None:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the engine does not serve")
            time.sleep(0.05)
        yield
    finally:
        child.kill()
        child.wait()


def timings(prompt: int, tokens: int) -> dict[str, Any]:
    """The server's own timings of one completion after `prompt` tokens of fresh text."""
    import urllib.request

    words = os.urandom(prompt).hex()[: max(1, prompt - 1)]
    body = {"prompt": words, "n_predict": tokens, "cache_prompt": False, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/completion", json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=600) as answer:
        server_timings: dict[str, Any] = json.loads(answer.read())["timings"]
    return server_timings


def _entry(model: str, prompt: int, tokens: int, samples: list[Sample]) -> Any:
    rates = [count / seconds for count, seconds in samples]
    times = [int(seconds * 1e9) for _, seconds in samples]
    return {
        "build_commit": "stand-in", "build_number": 0, "cpu_info": "stand-in of a rehearsal",
        "gpu_info": "", "backends": "CPU", "model_filename": model or MODEL,
        "model_type": "stand-in", "n_threads": 1, "n_prompt": prompt, "n_gen": tokens, "n_depth": 0,
        "avg_ns": int(statistics.mean(times)), "avg_ts": statistics.mean(rates),
        "stddev_ns": int(statistics.stdev(times)) if len(times) > 1 else 0,
        "stddev_ts": statistics.stdev(rates) if len(rates) > 1 else 0.0,
        "samples_ns": times, "samples_ts": rates,
    }  # fmt: skip


def _generated(tokens: int, pace: float) -> Sample:
    """One round of generation; with a pace no faster than that, in tok/s."""
    timing = timings(8, tokens)
    made, seconds = int(timing["predicted_n"]), timing["predicted_ms"] / 1e3
    late = max(0.0, made / pace - seconds) if pace else 0.0
    time.sleep(late)
    return made, seconds + late


def bench(arguments: Sequence[str]) -> int:
    """`llama-bench`: prompt and generation apart, `-r` samples each, as json, jsonl or a table.

    ik_llama.cpp's refuses what it does not take.
    """
    announce("llama-bench")
    own_settings = settings()
    is_ik = ik_llama.named(own_settings.image)
    notice = f"a tiny model answers as {ik_llama.engine(own_settings.image)} does"
    print(f"llama-bench: asked for {' '.join(arguments)}; {notice}", file=sys.stderr, flush=True)
    if is_ik and (wrong := ik_llama.refused(arguments)):
        print(wrong, file=sys.stderr)
        return 1
    model = value(arguments, "-m", "--model")
    prompt = int(value(arguments, "-p", "--n-prompt", default="512"))
    tokens = int(value(arguments, "-n", "--n-gen", default="128"))
    rounds = int(value(arguments, "-r", "--repetitions", default="5"))
    entries = []
    with served():
        timings(8, 4)
        if prompt:
            prompt_timings = [timings(prompt, 1) for _ in range(rounds)]
            samples = [
                (int(timing["prompt_n"]), timing["prompt_ms"] / 1e3) for timing in prompt_timings
            ]
            entries.append(_entry(model, prompt, 0, samples))
        if tokens:
            samples = [
                _generated(tokens, own_settings.pace if n % 2 else 0.0) for n in range(rounds)
            ]
            entries.append(_entry(model, 0, tokens, samples))
    if is_ik:
        entries = [ik_llama.bench_entry(test_entry) for test_entry in entries]
    _print(entries, value(arguments, "-o", "--output", default="md"))
    return 0


def _print(entries: list[Any], form: str) -> None:
    if form == "json":
        print(json.dumps(entries, indent=2))
        return
    for entry in entries:
        test = f"pp{entry['n_prompt']}" if entry["n_prompt"] else f"tg{entry['n_gen']}"
        rate = f"{entry['avg_ts']:.2f} ± {entry['stddev_ts']:.2f}"
        if form == "jsonl":
            print(json.dumps(entry))
        else:
            print(f"| stand-in | 0 | 0 | CPU | 1 | {test} | {rate} |")


def sweep(arguments: Sequence[str]) -> int:
    """`llama-sweep-bench`: one row per depth, as in ik_llama.cpp's table."""
    announce("llama-sweep-bench")
    context = int(value(arguments, "-c", "--ctx-size", default="1024"))
    prompt = min(int(value(arguments, "-ub", "--ubatch-size", default="256")), 512)
    tokens = max(1, prompt // 4)
    print("|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |")
    print("|-------|--------|--------|----------|----------|----------|----------|")
    with served():
        for depth in range(0, min(context, 4 * prompt), prompt):
            timing = timings(prompt, tokens)
            pp, tg = timing["prompt_ms"] / 1e3, timing["predicted_ms"] / 1e3
            print(
                f"| {prompt:5} | {tokens:6} | {depth:6} | {pp:8.3f} "
                f"| {timing['prompt_n'] / pp:8.2f} "
                f"| {tg:8.3f} | {timing['predicted_n'] / tg:8.2f} |",
                flush=True,
            )
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "entry": entry,
    "llama-server": llama_server,
    "vllm": vllm,
    "llama-bench": bench,
    "llama-sweep-bench": sweep,
    "cuobjdump": cuobjdump,
    "nvidia-smi": nvidia_smi,
}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
