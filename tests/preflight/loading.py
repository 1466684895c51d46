"""Loads models with the embedded engine, one after the other, and says of each whether it did.

`python -m tests.preflight.loading FILE…` prints a JSON object of path → loaded; a process of its
own, with another for each file: a server stays for as long as its process does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def loads(package: Any, path: str) -> Any:
    """A server with the model (weights loaded, context made), or None where it does not start."""
    params = package.CommonParams()
    params.model.path = path
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.n_gpu_layers = 256, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.fit_params, params.no_op_offload, params.warmup = False, True, False
    try:
        return package.Server(params)
    except RuntimeError:
        return None


def main(paths: list[str]) -> None:
    import xllamacpp

    answers = {}
    for path in paths:
        print(f"@@ {path}", file=sys.stderr, flush=True)
        child = os.fork()
        if not child:
            server = loads(xllamacpp, path)  # held on to: letting it go would wait for it
            os._exit(1 if server is None else 0)
        answers[path] = os.waitpid(child, 0)[1] == 0
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1:])
