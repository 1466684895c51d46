"""A baseline that ends while it is waited for: why, and what it wrote last."""

import pytest

from console.common.logs import cause
from console.host.process import ProcessSpec
from console.recovery.rollback import evidence
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


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'error: invalid argument: --ctx-sise'; exit 1", "correct its command line"),
        ("echo 'CUDA error: out of memory'; exit 1", "free the memory that it lacks"),
        ("echo 'x: error while loading shared libraries: libcudart.so.12'; exit 127", "library"),
        ("echo 'gguf_init_from_file: failed to open GGUF file m.gguf'; exit 1", "the model file"),
        ("kill -9 $$", "find out who ended it"),
        ("exit 3", ""),
    ],
)
def test_what_is_to_be_done_first_follows_from_why_it_ended(
    stage: Stage, script: str, words: str
) -> None:
    """The commands by hand would only start it again, to the same end; so would a rollback."""
    stage.seal(site_name="ws")
    stage.base(process=ProcessSpec(("/bin/sh", "-c", script)))
    result = stage.roll_back()
    first = result.manual[0]
    assert first.startswith("# ") is bool(words)
    assert words in first
    assert first.endswith("; then omni-console rollback") is bool(words)
    hint = evidence.after_failed_rollback("ws", stage.plan.baseline.url)
    assert hint.startswith("the last rollback failed (")
    assert result.detail[:60] in hint
    assert hint.endswith(": mend that, then omni-console rollback")


def test_every_cause_has_something_to_be_done() -> None:
    found = {kind for table in (cause._KINDS, cause._LAST_RESORTS) for kind, _ in table}
    assert found <= cause.NEXT.keys()


def test_no_rollback_and_one_that_went_well_leave_nothing_to_be_done(stage: Stage) -> None:
    stage.seal(site_name="ws")
    url = stage.plan.baseline.url
    assert evidence.after_failed_rollback("ws", url) == ""
    assert stage.roll_back().serving
    assert evidence.after_failed_rollback("ws", url) == ""
