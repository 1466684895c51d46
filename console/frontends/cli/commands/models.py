"""The arguments of `check`: what is known of a model, an image or a build beforehand."""

from __future__ import annotations

from typing import Any

from console.frontends.cli.parser import Parser, add_command, add_input

ONLY_HELP = "only the files that match"


def check_commands(commands: Any) -> None:
    check = commands.add_parser(
        "check", help="preflight: a GGUF's architecture, a checkpoint's fit, a host, a build",
        description="what can be known before anything is downloaded or started",
    )  # fmt: skip
    parts = check.add_subparsers(title="what", metavar="WHAT", required=True, parser_class=Parser)
    gguf = add_command(parts, "gguf", "check:gguf",
                "whether a build of llama.cpp knows a GGUF's architecture", site=True)  # fmt: skip
    gguf.add_argument(
        "what", metavar="PATH|URL|REPO", help="a file, its address, or a repository of the hub"
    )
    _build_asked(gguf, "ask this service's build (default: the baseline's)")
    gguf.add_argument("--include", action="append", default=[], metavar="GLOB", help=ONLY_HELP)
    fit = add_command(parts, "checkpoint", "check:checkpoint",
               "a model's true size, and whether it fits, with the arithmetic",
               site=True)  # fmt: skip
    fit.add_argument(
        "what", metavar="REPO[@REV]|URL|PATH", help="a repository of the hub, an address or a path"
    )
    _several(fit, "--include", "GLOB", ONLY_HELP)
    _several(fit, "--exclude", "GLOB", "not the files that match")
    fit.add_argument("--loader", choices=["", "mmap", "resident", "convert"], default="",
                     metavar="mmap|resident|convert", help="how it is loaded")  # fmt: skip
    fit.add_argument("--engine", default="", metavar="NAME", help="llama.cpp, sglang, kt-kernel, …")
    fit.add_argument("--ctx", type=int, metavar="N", help="tokens of context")
    fit.add_argument("--to", default="", metavar="DIR", help="where it would be downloaded to")
    fit.add_argument("--line", default="", metavar="RATE",
                     help="speed of your line, like 500Mbit/s")  # fmt: skip
    fit.add_argument("--beside", action="store_true", help="the baseline goes on serving beside it")
    fit.add_argument(
        "--suggest", action="store_true",
        help="which of its quantizations fit, placed how, with which context",
    )  # fmt: skip
    fit.add_argument("--top", type=int, metavar="N",
                     help="with --suggest: as many rows (default 5)")  # fmt: skip
    _build_asked(fit, "ask this service's build, with its arguments unless --args are given")
    fit.add_argument("--args", nargs="...", default=[], metavar="ARG",
                     help="the engine's own arguments: everything that follows")  # fmt: skip
    _check_host(parts)
    _check_build(parts)
    _check_contract(parts)
    imports = add_command(
        parts, "imports", "check:imports", "whether modules of an image can be imported", site=True
    )
    imports.add_argument("image", metavar="IMAGE", help="an image that is here, like name:tag")
    imports.add_argument("modules", nargs="+", metavar="MODULE", help="modules of Python")


def _build_asked(parser: Any, service: str) -> None:
    """Add the options that name the build that is asked, of which one may be given."""
    parser.add_argument("--image", default="", metavar="REF", help="ask the build in this image")
    parser.add_argument("--binary", default="", metavar="PATH", help="ask this llama-server")
    parser.add_argument("--service", default="", metavar="SERVICE", help=service)


def _check_host(parts: Any) -> None:
    host = add_command(
        parts, "host", "check:host", "whether this machine has what you ask for", site=True
    )
    host.add_argument(
        "--method", default="", metavar="NAME", help="kt-kernel's method, like AMXINT8"
    )
    host.add_argument("--port", action="append", type=int, default=[], metavar="N",
                      help="a port that has to be free")  # fmt: skip
    _several(host, "--image", "REF", "an image that has to be here")
    _several(host, "--torch", "REF", "an image whose PyTorch needs kernels for the cards")
    _several(host, "--compose", "FILE", "a compose file that has to be valid")
    for flag, metavar, words in (
        ("--disk", "DIR", "a directory whose disk is checked"),
        ("--need", "BYTES", "free at --disk, like 700GB"),
        ("--cuda", "VERSION", "CUDA version for cards, driver and `--tool nvcc`"),
        ("--compute", "VERSION", "lowest compute capability that will do, like 12.0"),
        ("--driver", "VERSION", "oldest driver that will do, like 580.126.09"),
    ):
        host.add_argument(flag, default="", metavar=metavar, help=words)
    _several(host, "--tool", "NAME", "a program that a build needs, like nvcc or cmake")
    _several(host, "--header", "NAME", "a header that a build needs, like nccl.h")
    host.add_argument("--conda", default="", metavar="DIR",
                      help="the conda environment that they may be in")  # fmt: skip
    host.add_argument("--sched-ext", action="store_true", help="the kernel has to have sched_ext")


def _check_build(parts: Any) -> None:
    build = add_command(
        parts, "build", "check:build", "every fault of a build known before it", site=True
    )
    build.add_argument("what", metavar="PLAYBOOK|DIR", help="its builds; or a source tree")
    build.add_argument("--dockerfile", default="", metavar="FILE", help="what builds DIR")
    build.add_argument("--target", default="", metavar="STAGE", help="the stage that is built")
    _several(build, "--build-arg", "NAME=VALUE", "a build argument")
    _several(build, "--module", "MODULE", "a module that the image has to import")
    add_input(build)


def _check_contract(parts: Any) -> None:
    contract = add_command(
        parts, "contract", "bench:contract",
        "whether a server answers as another one does: tools, schemas, words, errors",
    )  # fmt: skip
    contract.add_argument("url", metavar="URL", help="the server's address, http://HOST:PORT")
    contract.add_argument("--against", default="", metavar="FILE|URL",
                          help="compare with what --save kept, or with another server")  # fmt: skip
    contract.add_argument("--cases", default="", metavar="FILE", help="cases of your own, too")
    contract.add_argument("--save", default="", metavar="FILE", help="keep what it answers")
    contract.add_argument("--repeat", type=int, default=2, choices=range(1, 10), metavar="N",
                          help="ask each case N times (default 2), to see what varies")  # fmt: skip


def _several(parser: Any, flag: str, metavar: str, words: str) -> None:
    """Add an option that may be given more than once."""
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=words)
