"""What `ps` shows of the console's own processes, and what rollback.sh says of everybody else's."""

import subprocess
from pathlib import Path

import pytest

from console.common import redact
from console.host import systemd
from console.recovery.rollback.progress import PROGRESS_FILE
from tests.canary.planting import PARTS, SECRET, Canaries, leaks, leaks_in_files, stranger
from tests.runner.e2e.sites import book
from tests.runner.e2e.world import LIMIT_S
from tests.ui.place import Place, placed

GIVEN, FILED = "C4nary9001z", "C4nary9002z"
"""Secrets that the operator gives a step: by a variable and by a file. Nothing else marks them."""
INPUTS = "key: {type: secret, from: {env: GIVEN}}, filed: {type: secret, from: {file: key.txt}}"
STEP = (
    "id: long, run: [sh, -c, 'echo $A is A; echo $B is B >&2; exec sleep 600'],"
    " env: {A: '${{ inputs.key }}', B: '${{ inputs.filed }}'}"
)


def command_lines() -> str:
    """What every process of this machine shows to all of its users, but this one and its shells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:
            pass  # it has ended
    return "\n".join(found)


def told(place: Place) -> str:
    """What commands say of the newest run."""
    asked = ("show", "show --json", "report", "logs long", "recorder", "lessons", "doctor")
    done = [place.console(*words.split()) for words in asked]
    return "".join(f"{one.out}{one.err}" for one in done)


@pytest.mark.full
def test_a_secret_of_the_operator_stands_in_no_command_line_and_no_file(tmp_path: Path) -> None:
    with placed(tmp_path / "place") as place:
        place.env["GIVEN"] = GIVEN
        place.write("key.txt", f"{FILED}\n")
        run = place.detach(place.write("trial.yaml", book(STEP, name="trial", inputs=INPUTS)))
        place.until(lambda: "is B" in place.console("logs", "long").out, "it has said both")
        shown = command_lines()
        assert str(run.path) in shown, "the run's own processes are looked at"
        assert GIVEN not in shown
        assert FILED not in shown
        words = told(place)
        assert place.console("abort", run.id, "--reason", "enough").code is not None
        words += told(place) + place.console("rollback").out
        assert SECRET.findall(words) == []
        assert "***** is A" in words
        assert {part: leaks_in_files(Canaries(), place.root / part) for part in PARTS} == {
            part: {} for part in PARTS
        }


@pytest.mark.full
def test_rollback_sh_says_nothing_secret_of_who_holds_the_port(tmp_path: Path) -> None:
    words = Canaries()
    with placed(tmp_path / "place") as place:
        place.outage()
        run = place.run
        stranger(place, words, place.base_port)
        done = subprocess.run(
            ["sh", str(run.script)], env=place.env, cwd=place.root, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr + (run.rollback / PROGRESS_FILE).read_text()
        assert done.returncode == 7, said
        again = place.console("rollback")
        assert f":{place.base_port}" in again.out + again.err
        assert leaks(words, said + again.out + again.err + told(place)) == set()
        for part in PARTS:
            assert leaks_in_files(words, place.root / part) == {}


def test_a_unit_file_keeps_no_variable_that_names_a_secret() -> None:
    assert [name for name in systemd.PASSED if redact.is_secret(name, "x-value-y")] == []
    one = systemd.unit(False, systemd.WATCH)
    secrets = {"HF_TOKEN": "C4nary1z", "LLAMA_API_KEY": "C4nary1z", "PATH": "/bin"}
    form = "{order}{user}{environment}{command}{target}"
    assert "C4nary" not in systemd.filled(form, one, ["omni-console", "watch", "run"], secrets)
