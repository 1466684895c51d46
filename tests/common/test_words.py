"""What the exit codes mean, as `--help` and the documents say it."""

from syrupy.assertion import SnapshotAssertion

from console.common.output import EXIT_MEANING


def test_exit_codes(snapshot: SnapshotAssertion) -> None:
    assert {int(code): text for code, text in EXIT_MEANING.items()} == snapshot
