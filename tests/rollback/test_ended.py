"""A baseline that ends while it is waited for: why, and what it wrote last."""

import pytest

from console.host.process import ProcessSpec
from tests.rollback.conftest import Stage


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo loading; echo 'CUDA error: out of memory'; echo bye; exit 1",
            "CUDA error: out of memory; the baseline ended; its last lines: “loading”, “bye”",
        ),
        (
            "exec python3 -S -c 'print(\"loading\", flush=True)\ndef main():\n"
            "    raise OSError(98, \"no\")\nmain()'",
            "OSError: [Errno 98] no; the baseline ended; its last lines: “loading”",
        ),
        ("echo loading; echo all is well; exit 3", "the baseline ended; its last lines: “loading”"),
        ("kill -9 $$", "ended by signal 9 (SIGKILL); the kernel counted "),
        ("echo loading; kill -SEGV $$", "ended by signal 11 (SIGSEGV); the baseline ended; its"),
    ],
)  # fmt: skip
def test_why_a_baseline_ended_and_its_last_lines(stage: Stage, script: str, words: str) -> None:
    stage.base(process=ProcessSpec(("/bin/sh", "-c", script)))
    result = stage.roll_back()
    assert not result.serving
    assert words in result.detail
