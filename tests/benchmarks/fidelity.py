"""How true the benchmark's own client is: against known delays, and against real servers.

The peer is what a script would do: httpx, the stream's lines, each stamped as it is read, and
(N - 1) / (last - first). It is given N, where the server does not tell it.
"""

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import httpx

from console.bench.benchmark import tokenize
from console.bench.client import ChatRequest, stream_chat
from console.bench.sample import Sample, measure
from tests.bench.embedded import embedded
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure, Measured, Row
from tests.benchmarks.paced import NS, Paced, Script, Truth, paced
from tests.benchmarks.surroundings import CannotRun
from tests.benchmarks.yard import boxed
from tests.testbed.cache import Unavailable
from tests.testbed.models import visible_llama

Say = Callable[[str], None]

DELAYS, TTFT_ROUNDS = (0.02, 0.1, 0.3), 16
EACH = (1, 4, 16)
RATES = {1000.0: (256, 5), 100.0: (128, 2)}
"""Tokens a second: tokens of a stream, and how often."""
COUNTED = ("usage", "timings", "tokenize")
"""Ways in which a server tells how many tokens a chunk holds."""
CPU_RATE, CPU_TOKENS, CPU_ROUNDS = 100.0, 300, 3
REAL_TOKENS, REAL_RUNS = 128, 7
TTFT_MS, DECODE, AGREEMENT, CPU = 2.0, 1.0, 2.0, 5.0
PEER = "bare httpx"


@dataclass(frozen=True, slots=True)
class Seen:
    """One stream as one client saw it; seconds and tok/s."""

    ttft_s: float | None
    rate: float | None
    cpu_s: float
    truth: Truth
    sample: Sample | None = None


def run(say: Say) -> list[Measured]:
    """Scripted streams first, then an embedded engine, then a container with llama-bench."""
    rows: list[Measured] = []
    with paced() as server, httpx.Client(trust_env=False, timeout=60.0) as bare:
        for client in (ours, peer(bare)):  # imports and first connections
            client(server, Script(0.01, 64, 1000.0))
        with server.undisturbed() as alone:
            if alone:
                say("scripted streams go before every other program, on both sides")
                rows += _first_tokens(server, bare)
                rows += _decoding(server, bare, say)
        rows += _first_tokens(server, bare, ", beside other programs" if alone else "")
        rows += [] if alone else _decoding(server, bare, say)
        rows += _unsure(server, say)
        rows += _cpu(server, bare)
    with surroundings.workplace() as place:
        rows += _real(place, say)
    return rows


def ours(server: Paced, script: Script) -> Seen:
    """The console's client."""
    request = ChatRequest(json.dumps(asdict(script)), script.tokens)
    begun = time.process_time()
    reply = stream_chat(server.url, request)
    spent = time.process_time() - begun
    truth = server.truth()
    counts = script.tell in ("tokenize", "nobody")
    sample = measure(
        reply, script.tokens, (lambda text: tokenize(server.url, text)) if counts else None
    )
    if sample.error:
        raise CannotRun(f"the scripted stream failed: {sample.error}")
    return Seen(sample.ttft_s, sample.decode_tok_s, spent, truth, sample)


def peer(client: httpx.Client) -> Callable[[Paced, Script], Seen]:
    """A bare stream reader on one client; the server closes each connection."""

    def read(server: Paced, script: Script) -> Seen:
        body = ChatRequest(json.dumps(asdict(script)), script.tokens).body()
        cpu, begun = time.process_time(), time.perf_counter_ns()
        stamps: list[tuple[int, str]] = []
        url = f"{server.url}/v1/chat/completions"
        with client.stream("POST", url, json=body) as reply:
            for line in reply.iter_lines():
                stamps.append((time.perf_counter_ns(), line))
        spent = time.process_time() - cpu
        text = [at for at, line in stamps if 'content": " tok' in line]
        rate = (script.tokens - 1) * NS / (text[-1] - text[0])
        return Seen((text[0] - begun) / NS, rate, spent, server.truth())

    return read


def _first_tokens(server: Paced, bare: httpx.Client, busy: str = "") -> list[Measured]:
    """Role, ping and progress come long before the first token, and reasoning before the answer.

    `busy`: what else is measured then; the bars are for the client alone.
    """
    errors: dict[str, list[float]] = {"ours": [], "peer": []}
    answers: list[float] = []
    clients = {"ours": ours, "peer": peer(bare)}
    for number, delay in product(range(TTFT_ROUNDS), DELAYS):
        for name in clients if number % 2 else reversed(clients):
            seen = clients[name](server, Script(delay, 32, 1000.0, thought=16))
            errors[name].append(abs((seen.ttft_s or 0.0) - seen.truth.ttft_s) * 1e3)
            if seen.sample is not None:
                answers.append(abs((seen.sample.ttfo_s or 0.0) - seen.truth.ttfo_s) * 1e3)
    most = math.inf if busy else TTFT_MS
    return [
        Figure(f"error of TTFT{busy}", "ms", errors["ours"], most, "p95"),
        Figure(f"error of TTFO, after reasoning{busy}", "ms", answers, most, "p95"),
        Figure(f"error of TTFT, {PEER}{busy}", "ms", errors["peer"], of="p95"),
    ]


def _decoding(server: Paced, bare: httpx.Client, say: Say) -> list[Measured]:
    """Chunks of equal size, and those of speculative decoding, whose first holds one token."""
    rows: list[Measured] = []
    lost, late = 0, 0.0
    for (rate, (tokens, shots)), each, first in product(RATES.items(), EACH, (0, 1)):
        fast = rate == max(RATES)
        if first and (each == 1 or not fast):
            continue
        shape = f"{rate:g} tok/s, {each} a chunk" + (", the first alone" if first else "")
        for tell in COUNTED if fast else COUNTED[:1]:
            script = Script(0.02, tokens, rate, each, first, tell=tell)
            seen = [ours(server, script) for _ in range(shots)]
            late = max(late, *(one.truth.late for one in seen))
            known = [_off(one, script) for one in seen if one.rate is not None]
            lost += len(seen) - len(known)
            if known:
                rows.append(Figure(f"decode error, {shape}, {tell}", "%", known, DECODE))
        script = Script(0.02, tokens, rate, each, first)
        naive = [_off(peer(bare)(server, script), script) for _ in range(shots)]
        rows.append(Figure(f"decode error, {shape}, {PEER}", "%", naive))
    say(f"the server itself was {late * 1e3:.2f} ms late at worst")
    return [*rows, Figure("decode rates missing where they were told", "", [float(lost)], 0.0)]


def _off(seen: Seen, script: Script) -> float:
    """Per cent between a rate that was measured and the one at which tokens left the server."""
    return abs((seen.rate or 0.0) / seen.truth.rate(script) - 1) * 100


def _unsure(server: Paced, say: Say) -> list[Measured]:
    """Nobody says how many tokens a chunk holds: a rate may be given, but as an estimate."""
    unflagged, guessed = 0, 0
    for each, first in ((4, 0), (4, 1), (16, 0), (16, 1)):
        sample = ours(server, Script(0.02, 256, 1000.0, each, first, tell="end")).sample
        assert sample is not None
        unflagged += sample.decode_tok_s is not None and not any("estim" in f for f in sample.flags)
        say(f"counted at the end alone, {each} a chunk, first {first or each}: {sample.flags}")
        sample = ours(server, Script(0.02, 256, 1000.0, each, first, tell="nobody")).sample
        assert sample is not None
        guessed += sample.decode_tok_s is not None or not sample.void
    return [
        Figure("estimated decode rates without a flag", "", [float(unflagged)], 0.0),
        Figure("decode rates of streams that nobody counted", "", [float(guessed)], 0.0),
    ]


def _cpu(server: Paced, bare: httpx.Client) -> list[Measured]:
    """CPU of this process, which does nothing else, over the time of the stream."""
    clients = {"ours": ours, "peer": peer(bare)}
    shares: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(CPU_ROUNDS):
        for name in clients if number % 2 else reversed(clients):
            seen = clients[name](server, Script(0.02, CPU_TOKENS, CPU_RATE))
            shares[name].append(seen.cpu_s / (CPU_TOKENS / CPU_RATE))
    fast = ours(server, Script(0.02, 1000, 1000.0)).cpu_s
    return [
        Row("CPU a second at 100 tok/s", PEER, shares["ours"], shares["peer"]),
        Figure("CPU at 100 tok/s", "% of a core", [x * 100 for x in shares["ours"]], CPU),
        Figure("CPU at 1,000 tok/s", "% of a core", [fast * 100]),
    ]


def _real(place: Path, say: Say) -> list[Measured]:
    """One stream at a time of real servers; llama-bench on the same model, build and thread."""
    model = place / "measured.gguf"
    visible_llama(model)
    place.chmod(0o755)
    with embedded(model) as url:
        rows = _agreement("embedded llama.cpp", _samples(url), say)
    try:
        with boxed(place) as box:
            seen = _samples(box.url)
            rows += _agreement("llama-server in a container", seen, say)
            alone = box.bench(REAL_TOKENS, REAL_RUNS)
    except (Unavailable, CannotRun) as error:
        say(f"MISSING PEER llama-bench: {error}")
        return rows
    rates = [one.decode_tok_s for one in seen if one.decode_tok_s is not None]
    middle = statistics.median(alone)
    say(f"llama-bench {middle:.1f} tok/s, the server {statistics.median(rates):.1f} to our client")
    gaps = [(1 - one / middle) * 100 for one in rates]
    return [*rows, Figure("the server below llama-bench", "%", gaps)]


def _samples(url: str) -> list[Sample]:
    found = []
    for number in range(REAL_RUNS + 1):
        request = ChatRequest(f"[{number}] Explain how a bridge carries its load.", REAL_TOKENS)
        sample = measure(stream_chat(url, request), REAL_TOKENS)
        if sample.void:
            raise CannotRun(f"a run is void: {sample.void}")
        found.append(sample)
    return found[1:]


def _agreement(name: str, samples: list[Sample], say: Say) -> list[Measured]:
    pairs = [(s.decode_tok_s, s.server_decode_tok_s) for s in samples]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    say(
        f"{name}: {statistics.median(b for _, b in both):.1f} tok/s by its own timings, "
        f"{len(pairs) - len(both)} of {len(pairs)} runs without a rate"
    )
    off = [abs(a / b - 1) * 100 for a, b in both]
    return [Figure(f"from the timings of {name}", "%", off, AGREEMENT)]
