"""Rehearsals of the shipped playbooks, with every fault: ``python -m tests.rehearsal [WORD …]``.

In the testbed's engine, two minutes each; words choose playbooks and faults (`none` is without
one), or one rehearsal by both. `decisions` are the twelve that lead each trial to GO, to HOLD and
to NO-GO; without words all are rehearsed, these among them. Everything is kept in a scratch
directory. Exit 1 where one ends as it should not.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rehearsal import checkpoint
from tests.testbed.cache import Shared
from tests.testbed.engine import SESSIONS, ensure_engine

COMMAND = str(Path(sys.executable).with_name("omni-console"))
SITE = Path(__file__).parents[2] / "playbooks/sites/omni.yaml"
LARGE = {"ram: 377GiB": "ram: 3TiB\n  disk_free: 6TB",
         "avx512_bf16]": "avx512_bf16, amx_tile, amx_int8, amx_bf16]"}  # fmt: skip
LIMIT_S = 600.0
LAZARUS, PHASE2 = "operation-lazarus", "ik-llama-phase2"
EVALUATION, RESURRECTION = "kt-sglang-evaluation", "kt-sglang-resurrection"
ENGINES = {LAZARUS: "ktransformers", RESURRECTION: "sglang", EVALUATION: "sglang",
           PHASE2: "ik_llama.cpp"}  # fmt: skip
"""The four trials, and the engine that each one tries."""
BF16 = ("--input", "source={bf16}", "--input", "input_type=bf16")
FEWER = (*BF16, "--input", "gpu_experts=8")
MADE_UP = ("--input", "source=stand-in")
NO_AMX = (*MADE_UP, "--input", "method=MOE_INT8")
Q4 = ("--input", "source={q4_k_m}", "--input", "gpu_layers=16")
MOE, BENCH_MOE = "-mla 3 -fmoe -rtr -ot exps=CPU", "-mla 3 -fmoe 1 -rtr 1 -ot exps=CPU"
CHUNKS = "--chunked-prefill-size 4096 --disable-shared-experts-fusion"
USE_CUDA = "--use_cuda_graph --max_new_tokens 512"


@dataclass(frozen=True, slots=True)
class Case:
    """`more`: arguments, with {NAME} for a checkpoint of `tests.rehearsal.checkpoint`; `why`: words
    that are in what the run says of its end; `large`: on a site where memory and CPU hold;
    `extra`: words for `extra_args`, and for `bench_args`, that have to reach the programs."""

    playbook: str
    fault: str
    state: str
    decision: str | None
    why: str = ""
    more: tuple[str, ...] = ()
    large: bool = False
    extra: tuple[str, ...] = ()

    def arguments(self, shapes: dict[str, str]) -> list[str]:
        given = [word.format(**shapes) for word in self.more]
        for name, words in zip(("extra_args", "bench_args"), self.extra, strict=False):
            given += ["--input", f"{name}={words}"]
        return given + (["--fault", self.fault] if self.fault else [])


DECISIONS = (
    Case(LAZARUS, "", "succeeded", "go", extra=(USE_CUDA,)),
    Case(LAZARUS, "grey", "rolled_back", "hold", "do not decide"),
    Case(LAZARUS, "slow", "rolled_back", "no_go", "< 10 tok/s"),
    Case(RESURRECTION, "", "succeeded", "go", "(estimated)", FEWER, True, (CHUNKS,)),
    Case(RESURRECTION, "grey", "rolled_back", "hold", "do not decide", NO_AMX),
    Case(RESURRECTION, "slow", "rolled_back", "no_go", "> 26 tok/s", NO_AMX),
    Case(EVALUATION, "", "succeeded", "go", "", BF16, True, (CHUNKS,)),
    Case(EVALUATION, "grey", "rolled_back", "hold", "grey zone", MADE_UP),
    Case(EVALUATION, "slow", "rolled_back", "no_go", "< 8 tok/s", MADE_UP),
    Case(PHASE2, "", "succeeded", "go", "", Q4, extra=(MOE, BENCH_MOE)),
    Case(PHASE2, "grey", "rolled_back", "hold", "do not decide", MADE_UP),
    Case(PHASE2, "slow", "rolled_back", "no_go", ">= 20 tok/s", MADE_UP),
)
"""Each trial to each decision, by the speed of a stand-in that answers as its engine does."""

CASES = (
    *DECISIONS,
    Case(LAZARUS, "no-sm120", "rolled_back", None, "sm120"),
    Case(LAZARUS, "no-sched-ext", "succeeded", "no_go", "sched_ext"),
    Case(LAZARUS, "cuda-error", "rolled_back", None, "CUDA error"),
    Case(LAZARUS, "vram", "rolled_back", None, "VRAM used"),
    Case(LAZARUS, "ram", "rolled_back", None, "RAM available"),
    Case(LAZARUS, "crash", "rolled_back", None, "stability"),
    Case(LAZARUS, "never-ready", "rolled_back", None, "not ready"),
    Case(PHASE2, "", "succeeded", "hold", "serves this very configuration",
         ("--input", "source={q4_k_m}")),
    Case("baseline-rebuild", "", "succeeded", "go"),
    Case("baseline-rebuild", "slow", "rolled_back", "no_go", "baseline"),
    Case("distill-serve", "", "succeeded", "hold", "could not be asked",  # of a stand-in's build
         ("--input", "repo={distill}")),
    Case(RESURRECTION, "", "succeeded", "no_go", "segmentation fault",
         ("--input", "source={fp8}")),
)  # fmt: skip


def environment(scratch: Path, large: bool) -> dict[str, str]:
    """A home of its own; the site, or one like it where memory and CPU hold what the real do not.

    The stand-ins' speed is measured once for all of them.
    """
    text = SITE.read_text()
    for was, now in LARGE.items() if large else ():
        assert was in text, was
        text = text.replace(was, now)
    site = scratch / ("large.yaml" if large else "site.yaml")
    site.write_text(text)
    own = {f"XDG_{part}_HOME": str(scratch / part) for part in ("STATE", "CONFIG", "CACHE")}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMNI_", "PYTHONPATH"))}
    host = scratch / "host"
    host.mkdir(exist_ok=True)
    own |= {"HOME": str(scratch), "OMNI_SITE": str(site), "OMNI_HOST_DIR": str(host)}
    return {**kept, **own, **ensure_engine().env()}


def one(case: Case, scratch: Path) -> bool:
    """Rehearse it; whether it ended as the case asks for, with the baseline proven to serve."""
    shapes = {
        name: str(checkpoint.put(name, scratch / "checkpoints"))
        for name in checkpoint.SHAPES
        if any(f"{{{name}}}" in word for word in case.more)
    }
    begun = time.monotonic()
    done = subprocess.run(
        [COMMAND, "run", case.playbook, "--rehearse", "--yes", "--json", *case.arguments(shapes)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env=environment(scratch, case.large),
    )  # fmt: skip
    name = f"{case.playbook} {case.fault or 'none'}{' (large site)' if case.large else ''}"
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {}
    if "verdicts" not in found:
        said = f"{done.stderr.strip()} {json.dumps(found.get('error', found))}"
        print(f"FAILED  {name}: exit {done.returncode}: {said[-600:]}", flush=True)
        return False
    missing = unsaid(case, scratch / "STATE/omni-console/runs" / found["run"])
    good = as_asked(case, found) and not missing
    ended = f"{found['state']}, {found['decision']}, exit {done.returncode}: {found.get('because')}"
    ended += f"; no stand-in says {missing}" if missing else ""
    took = time.monotonic() - begun
    print(f"{'ok' if good else 'FAILED':<7} {name}: {ended} ({took:.0f} s)", flush=True)
    return good


def unsaid(case: Case, run: Path) -> list[str]:
    """What the logs of the stand-ins should say and do not: whose answers they give, and the
    further flags that they were given."""
    told = "\n".join(path.read_text(errors="replace") for path in run.glob("*/*.log"))
    answers = [f"answers as {ENGINES[case.playbook]} does"] if case in DECISIONS else []
    return [words for words in (*answers, *case.extra) if words not in told]


def as_asked(case: Case, found: dict[str, Any]) -> bool:
    """State, decision and reason; and that whatever stopped the baseline brought it back."""
    told = json.dumps([found.get("because"), found["verdicts"], found["guards"],
                       [step for step in found["steps"] if step["state"] != "succeeded"]],
                      ensure_ascii=False)  # fmt: skip
    back = found["outage_s"] is None or found["restore_s"] is not None
    decided = case.decision is None or found["decision"] == case.decision
    return found["state"] == case.state and decided and case.why in told and back


def main(words: list[str]) -> int:
    books = {case.playbook for case in CASES} & set(words)
    faults = set(words) - books - {"decisions"}
    chosen = [case for case in (DECISIONS if "decisions" in words else CASES)
              if (not books or case.playbook in books)
              and (not faults or (case.fault or "none") in faults)]  # fmt: skip
    share = contextlib.closing(Shared(SESSIONS))  # nobody tidies the engine up meanwhile
    with share, tempfile.TemporaryDirectory(prefix="omni-rehearsals-") as scratch:
        ended = [one(case, Path(scratch)) for case in chosen]
    print(f"{sum(ended)} of {len(ended)} ended as they should")
    return 0 if all(ended) and ended else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
