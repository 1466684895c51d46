"""What a stranger's command line holds is in no file and no word of a run or a rollback."""

from pathlib import Path

from console.host.ports import held_words, listener
from tests.canary.planting import (
    PARTS,
    Canaries,
    in_the_site,
    leaks,
    leaks_in_files,
    sealed,
    stranger,
)
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
    """Of the operator's own, too: flags and variables of the site, and an input that only its place
    in a command marks. run.json had it as it was given."""
    words = Canaries()
    with placed(tmp_path / "place") as place:
        in_the_site(place, words)
        stranger(place, words, place.cand_port)
        say = "id: say, run: [echo, --token, '${{ inputs.word }}', '${{ inputs.word }}']"
        text = book(say, "id: up, service: {start: side}", inputs="word: {type: string}")
        given = f"word={words.secret('input')}"
        ran = place.console("run", str(place.write("taken.yaml", text)), "--input", given)
        rolled = place.console("rollback")
        asked = ("show --json", "report", "recorder", "logs say", "runs --json", "attach")
        shown = [place.console(*argv.split()) for argv in asked]
        printed = "".join(f"{one.out}{one.err}" for one in (ran, rolled, *shown))
        assert str(place.cand_port) in printed
        assert place.run.meta().inputs == {"word": given.partition("=")[2]}
        assert not leaks(words, printed)
        for part in PARTS:
            found = leaks_in_files(words, place.root / part)
            assert [one for one in found if not sealed(place.root / part / one)] == []
