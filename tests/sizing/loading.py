"""Loads models in a real llama.cpp, each in a process of its own, and passes on what it logs.

`logged` runs this module with a JSON file: [{"model": PATH, "parameters": {NAME: VALUE}}]. Before
each model a line `@@ INDEX` is written. A cache's type is given by its name. A process is ended as
soon as it has logged that it is ready or has failed: its log is written by a thread, and taking a
server down in order may wait for ever.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT_S, ALL_S = 30, 250
LAST_WORDS = (b"all slots are idle", b"exiting due to")


def logged(folder: Path, cases: list[tuple[Path, dict[str, Any]]]) -> list[str]:
    """The log of each case: a model's file, and the parameters it is loaded with."""
    wanted = folder / "wanted.json"
    asked = [{"model": str(path), "parameters": how} for path, how in cases]
    wanted.write_text(json.dumps(asked), "utf-8")
    done = subprocess.run(
        [sys.executable, __file__, wanted], capture_output=True, check=True, timeout=ALL_S
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    found = re.split(r"^@@ \d+$", text, flags=re.MULTILINE)[1:]
    assert len(found) == len(cases)
    return found


def load(model: str, parameters: dict[str, Any]) -> None:
    """Load one model and wait to be ended."""
    import xllamacpp

    signal.alarm(LIMIT_S)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_gpu_layers = 0
    params.fit_params = False
    params.warmup = False
    params.port = 0
    params.verbosity = 5
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = 1
    for name, value in parameters.items():
        if name.startswith("cache_type"):
            value = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}")
        setattr(params, name, value)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        server = None
    signal.pause()
    os._exit(server is None)


def main() -> None:
    for index, one in enumerate(json.loads(Path(sys.argv[1]).read_text("utf-8"))):
        os.write(2, f"\n@@ {index}\n".encode())
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            os.close(reading)
            os.close(writing)
            load(one["model"], one["parameters"])
        os.close(writing)
        with os.fdopen(reading, "rb") as log:
            for line in log:
                os.write(2, line)
                if any(words in line for words in LAST_WORDS):
                    break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
