"""What is known of a model beforehand, and how fast a server is."""

from console.frontends.cli.commands.record import (
    LOADS,
    Argument,
    Command,
    option,
    place,
    several,
    switch,
    text,
)
from console.frontends.cli.commands.shared import INPUT, JSON, SITE

INCLUDE = several("--include", "GLOB", "only the files that match")
IMAGE = text("--image", "REF", "ask the build in this image")
BINARY = text("--binary", "PATH", "ask this llama-server")

COMMANDS = (
    Command(
        "check",
        "what can be known before anything is downloaded or started",
        danger=LOADS,
        listed="preflight: a GGUF's architecture, a checkpoint's fit, a host, a build",
        parts=(
            Command(
                "gguf",
                "whether a build of llama.cpp knows a GGUF's architecture",
                "check:gguf",
                (
                    JSON,
                    SITE,
                    place(
                        "what", "PATH|URL|REPO", "a file, its address, or a repository of the hub"
                    ),
                    IMAGE,
                    BINARY,
                    text(
                        "--service", "SERVICE", "ask this service's build (default: the baseline's)"
                    ),
                    INCLUDE,
                ),
            ),
            Command(
                "checkpoint",
                "a model's true size, and whether it fits, with the arithmetic",
                "check:checkpoint",
                (
                    JSON,
                    SITE,
                    place(
                        "what",
                        "REPO[@REV]|URL|PATH",
                        "a repository of the hub, an address or a path",
                    ),
                    INCLUDE,
                    several("--exclude", "GLOB", "leave out the files that match"),
                    text(
                        "--loader",
                        "mmap|resident|convert",
                        "how it is loaded",
                        choices=("", "mmap", "resident", "convert"),
                    ),
                    text("--engine", "NAME", "llama.cpp, sglang, kt-kernel, …"),
                    option("--ctx", "N", "tokens of context", type=int),
                    text("--to", "DIR", "where it would be downloaded to"),
                    text("--line", "RATE", "speed of your line, like 500Mbit/s"),
                    switch("--beside", "the baseline goes on serving beside it"),
                    switch(
                        "--suggest",
                        "list its quantizations that fit, how placed and with how much context",
                    ),
                    option(
                        "--top", "N", "with --suggest: the number of rows (default 5)", type=int
                    ),
                    IMAGE,
                    BINARY,
                    text(
                        "--service",
                        "SERVICE",
                        "ask this service's build, with its arguments unless --args are given",
                    ),
                    option(
                        "--args",
                        "ARG",
                        "the engine's own arguments: everything that follows",
                        nargs="...",
                        default=[],
                    ),
                ),
            ),
            Command(
                "host",
                "whether this machine has what you ask for",
                "check:host",
                (
                    JSON,
                    SITE,
                    text("--method", "NAME", "kt-kernel's method, like AMXINT8"),
                    several("--port", "N", "a port that has to be free", type=int),
                    several("--image", "REF", "an image that has to be here"),
                    several("--torch", "REF", "an image whose PyTorch needs kernels for the cards"),
                    several("--compose", "FILE", "a compose file that has to be valid"),
                    text("--disk", "DIR", "a directory whose disk is checked"),
                    text("--need", "BYTES", "what has to be free at --disk, like 700GB"),
                    text("--cuda", "VERSION", "CUDA version for cards, driver and `--tool nvcc`"),
                    text(
                        "--compute", "VERSION", "lowest compute capability that will do, like 12.0"
                    ),
                    text("--driver", "VERSION", "oldest driver that will do, like 580.126.09"),
                    several("--tool", "NAME", "a program that a build needs, like nvcc or cmake"),
                    several("--header", "NAME", "a header that a build needs, like nccl.h"),
                    text(
                        "--conda",
                        "DIR",
                        "a conda environment in which tools and headers are looked for",
                    ),
                    switch("--sched-ext", "the kernel has to have sched_ext"),
                ),
            ),
            Command(
                "build",
                "list the faults of a build before it begins",
                "check:build",
                (
                    JSON,
                    SITE,
                    place(
                        "what", "PLAYBOOK|DIR", "a playbook, for all its builds; or a source tree"
                    ),
                    text("--dockerfile", "FILE", "the Dockerfile that builds DIR"),
                    text("--target", "STAGE", "the stage that is built"),
                    several("--build-arg", "NAME=VALUE", "a build argument"),
                    several("--module", "MODULE", "a module that the image has to import"),
                    INPUT,
                ),
            ),
            Command(
                "contract",
                "whether a server answers as another one does: tools, schemas, words, errors",
                "bench:contract",
                (
                    JSON,
                    place("url", "URL", "the server's address, http://HOST:PORT"),
                    text(
                        "--against",
                        "FILE|URL",
                        "compare with what --save kept, or with another server",
                    ),
                    text("--cases", "FILE", "also ask the cases in FILE"),
                    text("--save", "FILE", "keep the answers in FILE"),
                    option(
                        "--repeat",
                        "N",
                        "ask each case N times (default 2), to see what varies",
                        type=int,
                        default=2,
                        choices=range(1, 10),
                    ),
                ),
            ),
            Command(
                "imports",
                "whether modules of an image can be imported",
                "check:imports",
                (
                    JSON,
                    SITE,
                    place("image", "IMAGE", "an image that is here, like name:tag"),
                    place("modules", "MODULE", "modules of Python", nargs="+"),
                ),
            ),
        ),
        parts_are="WHAT",
        parts_title="what",
    ),
    Command(
        "bench",
        "measure an OpenAI-compatible endpoint",
        "bench:bench",
        (
            JSON,
            place("url", "URL", "where it answers, like http://127.0.0.1:8000"),
            option("--runs", "N", "default: 9", type=int, default=9),
            option(
                "--max-runs",
                "N",
                "at most N runs when they vary (default: a third more than --runs)",
                type=int,
            ),
            option("--timeout", "DURATION", "of one request (default: 10m)", default="10m"),
            option("--max-tokens", "N", "of one answer (default: 256)", type=int, default=256),
            text("--model", "NAME", "the model to ask for"),
            text(
                "--expect",
                "PATTERN",
                "a pattern that each answer has to match somewhere, else its run is void",
            ),
            Argument(
                "--endpoint", default="chat", choices=("chat", "completions"), help="default: chat"
            ),
            option(
                "--prompt-lengths",
                "TOKENS",
                "afterwards, the prompt rate with prompts of TOKENS tokens",
                type=int,
                nargs="+",
                default=[],
            ),
            option(
                "--concurrency",
                "N",
                "afterwards, the same with N requests at once",
                type=int,
                nargs="+",
                default=[],
            ),
        ),
        danger=LOADS,
    ),
)
