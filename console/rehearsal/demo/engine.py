"""A real llama.cpp HTTP server in the foreground, out of the PyPI package ``xllamacpp``.

``python -m console.rehearsal.demo.engine --model PATH --port N`` serves what ``llama-server``
serves: ``/health`` (503 while the model loads), ``/v1/chat/completions``, ``/props``, ``/slots``
and ``/metrics``. SIGTERM and SIGINT end it at once: with exit code 0 when it is serving, by the
signal itself while it is still loading, since the package holds the interpreter that long.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

LOOPBACK = "127.0.0.1"
HINT = "the demo engine is not installed: pip install 'omni-console[demo]'"


# Measured: a second thread gains a quarter at best, and costs nine tenths of the speed as soon
# as anything else wants its core, because the threads meet a dozen times in every block.
THREADS_HELP = "threads to compute with (default 1, the steadiest)"


FLASH = {"auto": -1, "off": 0, "on": 1}
CACHES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8}
"""Numbers of llama.h (`llama_flash_attn_type`) and ggml.h (`ggml_type`)."""


GARBLED = ("--repeat-penalty", "0.01")
"""A wrong setting that garbles every answer: what was said once is a hundred times as likely."""


class EngineFailure(Exception):
    """The engine cannot serve; the text is the one line that tells why."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m console.rehearsal.demo.engine", description=__doc__
    )
    parser.add_argument("--model", type=Path, required=True, help="GGUF file to serve")
    parser.add_argument("--port", type=int, required=True, help="TCP port; 0 takes a free one")
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on")
    parser.add_argument("-t", "--threads", type=int, default=1, help=THREADS_HELP)
    parser.add_argument("-b", "--batch-size", type=int, default=2048, help="tokens of a batch")
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512, help="computed at once")
    parser.add_argument("-fa", "--flash-attn", choices=FLASH, default="auto")
    parser.add_argument("-ctk", "--cache-type-k", choices=CACHES, default="f16")
    parser.add_argument("-ctv", "--cache-type-v", choices=CACHES, default="f16")
    parser.add_argument(
        "-c", "--ctx-size", "--ctx", dest="ctx", type=int, default=4096, help="context in tokens"
    )
    parser.add_argument("--alias", default="", help="model name that the API reports")
    parser.add_argument("--parallel", type=int, default=1, help="slots")
    parser.add_argument("--chat-template", default="", help="a Jinja template, not the model's own")
    parser.add_argument("--jinja", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--repeat-penalty", type=float, default=1.0, help="below 1: repeat")
    parser.add_argument("--cache-ram", type=int, default=8192, help="prompt cache limit in MiB")
    rope = "0: as the model says; a wrong value makes garbage of every answer"
    parser.add_argument("--rope-freq-base", type=float, default=0.0, help=rope)
    parser.add_argument("--rope-freq-scale", type=float, default=0.0, help=rope)
    return parser


def _package() -> Any:
    """Import the module ``xllamacpp``. Raises ``EngineFailure`` if it is missing or broken."""
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise EngineFailure(HINT) from error
    except ImportError as error:
        raise EngineFailure(f"the package xllamacpp does not load: {error}") from error
    return xllamacpp


def _check(model: Path, host: str, port: int) -> None:
    """Raise ``EngineFailure`` if the model cannot be read or the address is not free."""
    try:
        with model.open("rb"):
            pass
    except OSError as error:
        raise EngineFailure(f"cannot read the model {model}: {error.strerror}") from error
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EngineFailure(f"port {port} on {host} is taken") from error
        raise EngineFailure(f"cannot listen on {host} port {port}: {error.strerror}") from error
    except OverflowError as error:
        raise EngineFailure(f"{port} is not a port; ports are 0 to 65535") from error


def _parameters(package: Any, options: argparse.Namespace) -> Any:
    """``CommonParams`` with the endpoints of a monitored server, on the CPU alone."""
    params = package.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias or options.model.stem}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx
    params.n_parallel = options.parallel
    params.cache_ram_mib = options.cache_ram
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_batch, params.n_ubatch = options.batch_size, options.ubatch_size
    params.flash_attn_type = FLASH[options.flash_attn]
    params.cache_type_k, params.cache_type_v = (
        CACHES[options.cache_type_k],
        CACHES[options.cache_type_v],
    )
    params.rope_freq_base, params.rope_freq_scale = options.rope_freq_base, options.rope_freq_scale
    params.sampling.penalty_repeat = options.repeat_penalty
    params.use_jinja = options.jinja
    if options.chat_template:
        params.chat_template = options.chat_template
    params.n_gpu_layers = 0
    params.no_op_offload = True
    params.fit_params = False
    params.endpoint_slots = True
    params.endpoint_metrics = True
    return params


def _wait_for_signal() -> None:
    """Return when SIGTERM or SIGINT arrives, whichever thread the system hands it to."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    os.read(reader, 1)


def _say(words: str) -> None:
    """One write, newline included: llama.cpp's log thread writes to the same descriptors."""
    os.write(sys.stdout.fileno(), f"engine: {words}\n".encode())


def serve(options: argparse.Namespace) -> NoReturn:
    """Load the model, serve until a signal arrives and end the process with exit code 0.

    Raises ``EngineFailure`` if it cannot start serving; llama.cpp has then written its own
    reason to stderr.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    package = _package()
    _check(options.model, options.host, options.port)
    try:
        server = package.Server(_parameters(package, options))
    except RuntimeError as error:
        line = f"llama.cpp does not serve {options.model}; the lines above say why"
        raise EngineFailure(line) from error
    _say(f"serving {options.model.name} on {server.listening_address}")
    _wait_for_signal()
    _say("stopped")
    os._exit(0)  # taking llama.cpp down in order would wait for the answers it is writing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engine; returns 1 after one line on stderr if it cannot serve."""
    options = _parser().parse_args(arguments)
    try:
        serve(options)
    except EngineFailure as failure:
        print(f"engine: {failure}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
