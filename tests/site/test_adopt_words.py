"""What `adopt` says of a foreign process' command line: names of flags, never what they hold."""

import pytest

from console.host.process import ProcessSpec
from console.runtime.discovery.adoption import difference
from console.runtime.discovery.processes import Running, not_again

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
