"""An exception that quotes foreign text is printed without the secrets of that text."""

import logging
import subprocess
import sys

import pytest

from console.common import crash

QUOTED = "cannot read: llama-server --api-key s3cret --port 1"
SAID = "ValueError: cannot read: llama-server --api-key ***** --port 1"
FAILS = f"def fails():\n    line = {QUOTED!r}\n    raise ValueError(line)\n"
WAYS = {
    "at the end of its main thread": "fails()",
    "in a thread": "from threading import Thread\nThread(target=fails).start()",
    "where an object ends": "class One:\n    __del__ = lambda self: fails()\nOne()",
    "in a call of asyncio": (
        "import asyncio\nfrom console.common import crash\ncrash.clean_logging()\n"
        "async def main():\n    asyncio.get_running_loop().call_soon(fails)\n"
        "    await asyncio.sleep(0)\nasyncio.run(main())"
    ),
    "with a cause": "try:\n    fails()\nexcept ValueError as one:\n    raise OSError(2) from one",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_nobody_catches_is_told_without_secrets(way: str) -> None:
    """In a process of its own, whatever module of the program it runs."""
    code = f"import console.host.process\n{FAILS}{WAYS[way]}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert SAID in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback (most recent call last)" in done.stderr


def test_an_exception_that_was_caught_is_told_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise ValueError(QUOTED)
    except ValueError:
        crash.print_exception()
    said = capsys.readouterr().err
    assert SAID in said
    assert "s3cret" not in said


def test_a_private_key_in_an_exception_is_hidden_in_each_line() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvs3cret\nabcs3cret\n-----END PRIVATE KEY-----"
    assert "s3cret" not in crash.words_of(ValueError(key))


def test_what_a_library_logs_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    last = logging.lastResort
    assert last is not None
    before = last.formatter
    try:
        crash.clean_logging()
        last.handle(logging.LogRecord("x", logging.ERROR, "x.py", 1, QUOTED, None, None))
    finally:
        last.setFormatter(before)
    assert "llama-server --api-key *****" in capsys.readouterr().err
