"""Override files that a recreated baseline would lack are named."""

from pathlib import Path

from console.recovery.rollback.stages.start import _unread
from console.runtime.docker.compose import up_argv


def test_an_override_beside_the_file_is_named(tmp_path: Path) -> None:
    base, override = tmp_path / "compose.yaml", tmp_path / "compose.override.yaml"
    base.touch()
    argv = up_argv([base], "llm", "", ())
    assert _unread(argv) == []
    override.touch()
    assert _unread(argv) == [str(override)]
    assert _unread(up_argv([base, override], "llm", "", ())) == []
