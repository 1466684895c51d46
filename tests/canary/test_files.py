"""What a stranger's command line holds is in no file and no word of a run or a rollback."""

from pathlib import Path

from console.host.ports import held_words, listener
from tests.canary.planting import Canaries, leaks, leaks_in_files, stranger
from tests.runner.e2e.sites import book
from tests.ui.place import Place, placed


def held(place: Place, words: Canaries, port: int) -> str:
    pid = stranger(place, words, port)
    said = held_words(f"http://127.0.0.1:{port}")
    assert f"pid {pid}" in said
    return said


def test_who_holds_a_port_is_told_without_secrets(tmp_path: Path) -> None:
    """T2: `--api-key s3cret` of any process on a port was printed, and written to two files."""
    place, words = Place.begin(tmp_path / "place"), Canaries()
    try:
        said = held(place, words, place.cand_port)
        assert "…" in said
        assert "and more" not in said
        assert "--api-key" not in said, "no word behind an unknown flag, and no such flag"
        found = listener(place.cand_url)
        assert found is not None
        assert not leaks(words, said + found.words)
    finally:
        place.close()


def test_no_file_of_a_run_or_a_rollback_holds_a_secret(tmp_path: Path) -> None:
    words = Canaries()
    with placed(tmp_path / "place") as place:
        stranger(place, words, place.cand_port)
        text = book("id: up, service: {start: side}")
        ran = place.console("run", str(place.write("taken.yaml", text)))
        rolled = place.console("rollback")
        shown = [place.console(*argv.split()) for argv in ("show --json", "report", "recorder")]
        printed = "".join(f"{one.out}{one.err}" for one in (ran, rolled, *shown))
        assert str(place.cand_port) in printed
        assert not leaks(words, printed)
        for part in ("state", "host", "config", "cache"):
            assert leaks_in_files(words, place.root / part) == {}
