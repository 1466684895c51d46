"""What `adopt` says of a foreign process' command line: names of flags, never what they hold."""

import os
import signal
import sys
from pathlib import Path

import pytest

from console.host import process
from console.host.process import ProcessSpec
from console.runtime.discovery.adoption import difference
from console.runtime.discovery.processes import Running, not_again, read
from tests.waiting import until

V = "Zx7Qv9Lm2Kp4Wt"
PROGRAM = "/opt/llama-server"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            "-dev-root-token-id=a",
            f"-dev-root-token-id={V}",
            "it has another value of -dev-root-token-id (",
        ),
        ("--header a", f"--header {V}", "it has another value of --header ("),
        ("--x a", f"--x -p{V}", "word 3 of its command line is another one"),
        ("--ctx-size 4096", "--ctx-size 8192", "it has another value of --ctx-size ("),
        ("-c 4096", "-c 8192", "it has another value of -c ("),
        ("--mlock -v", "--no-mmap -v", "word 2 of its command line is --no-mmap"),
        ("a --y", f"{V} --y", "word 2 of its command line is another one"),
        ("-pab", f"-p{V}", "word 2 of its command line is another one"),
        ("-pab", "-psecretword", "word 2 of its command line is another one"),
        ("-pab", "-pcorrect-horse-battery", "word 2 of its command line is another one"),
        ("-ngl 9", "-ngl 19", "it has another value of -ngl ("),
        ("--x a b", f"--x a {V}", "word 4 of its command line is another one"),
        ("--x=a b", f"--x=a {V}", "word 3 of its command line is another one"),
        ("-pa=", f"-p{V}==", "word 2 of its command line is another one"),
        ("--a", f"--{V}", "word 2 of its command line is another one"),
    ],
)
def test_the_words_of_a_foreign_command_line_are_not_said(
    ours: str, theirs: str, words: str
) -> None:
    spec = ProcessSpec((PROGRAM, *ours.split()), cwd="/")
    running = Running(7, 9, 0, (PROGRAM, *theirs.split()), PROGRAM, "/", {})
    said = difference(spec, running)
    assert V not in said
    assert said.startswith(words)


def test_a_title_that_a_process_has_given_itself_is_not_said() -> None:
    assert V not in not_again(Running(7, 9, 0, (f"server: worker -p{V}",), "", "/", {}))


@pytest.mark.parametrize(
    "first",
    [sys.executable, f"{sys.executable} -S", "/usr/bin/env python3", "/usr/bin/env -S python3 -S"],
)
def test_a_script_is_the_program_of_the_process_that_interprets_it(
    tmp_path: Path, first: str
) -> None:
    """`vllm serve …` is such a script: the kernel shows its interpreter, and the script behind."""
    spec, other = (ProcessSpec((str(tmp_path / name), "serve", "m")) for name in ("vllm", "other"))
    for script in (spec, other):
        Path(script.argv[0]).write_text(f"#!{first}\nimport time\ntime.sleep(60)\n")
        Path(script.argv[0]).chmod(0o755)
    pid, start = process.spawn(spec, log=tmp_path / "log", cookie="c", base=dict(os.environ))
    try:
        until(lambda: runs_script(pid, spec.argv[0]), "it runs")
        running = read(pid)
        assert running is not None
        assert difference(spec, running) == ""
        assert difference(other, running).startswith("its program is")
        longer = ProcessSpec((*spec.argv, "--x"))
        assert difference(longer, running) == "its command line has 3 words, and the site file's 4"
        changed = ProcessSpec((spec.argv[0], "serve", "n"))
        assert "is another one" in difference(changed, running)
        python = ProcessSpec((sys.executable, *spec.argv[1:]))
        assert difference(python, running), "the interpreter alone is not the script"
    finally:
        process.send(pid, start, signal.SIGKILL)


def runs_script(pid: int, script: str) -> bool:
    argv = process.argv(pid)
    return script in argv and os.path.basename(argv[0]).startswith("python")
