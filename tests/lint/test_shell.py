"""Commands out of shell text: quotes, wrappers, shells inside shells, and their places."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console.checks.lint import shell
from console.checks.lint.commands import DETACHED
from console.checks.lint.run import shell_unit
from console.checks.lint.unit import Kind, Place, Source, Unit, Where, whole


def unit(text: str) -> Unit:
    return shell_unit(Source(Path("x.sh"), text, Kind.SHELL))


def lines(text: str) -> list[str]:
    return [command.line for command in unit(text).commands]


def test_words_lose_their_quotes() -> None:
    for text, expected in (
        ("""a 'b c' "d $E" f\\ g h"i"'j'""", ["a", "b c", "d $E", "f g", "hij"]),
        ('a "x\\"y" \\\n  b', ["a", 'x"y', "b"]),
        ("a $'t\\n' $(b) > out 2>&1", ["a", "t\\n", "$(b)"]),
        ("a ${{ inputs.x }}/b '${{ y }}' c", ["a", "${{ inputs.x }}/b", "${{ y }}", "c"]),
        ("ünïcode 'größe' b", ["ünïcode", "größe", "b"]),
    ):
        (first, *_) = shell.parse(whole(text)).commands
        assert [word.text for word in first.words] == expected


def test_places_count_characters() -> None:
    (first,) = shell.parse(whole("größe 'ß' x")).commands
    assert [word.place for word in first.words] == [Place(1, 1), Place(1, 7), Place(1, 11)]


def test_the_command_inside_is_found() -> None:
    texts = (
        "sudo -u me env A=1 nice -n 5 cmd x",
        "timeout -k 5 60 nohup cmd x",
        "bash -lc 'cmd x'",
        "ssh -p 22 me@box cmd x",
        "ssh -o BatchMode=yes box \"bash -c 'cmd x'\"",
        "docker exec -it -u root box cmd x",
        "docker run --rm -it --gpus all -v /a:/b --name n image:1 cmd x",
        "docker run --entrypoint cmd image x",
        "docker compose -f stack.yaml exec -T service cmd x",
        "eval cmd x",
        "sh <<EOF\ncmd x\nEOF",
        "cat <<'EOF' | bash -s\ncmd x\nEOF",
    )
    assert [text for text in texts if "cmd x" not in lines(text)] == []


def test_what_only_looks_like_a_command_is_none() -> None:
    for text in ("command -v cmd", "echo 'cmd x'", "# cmd x", "x=$'cmd x'"):
        assert [line for line in lines(text) if line.startswith("cmd")] == []


def test_a_place_inside_a_quoted_script_is_its_own() -> None:
    found = unit("docker exec -d box bash -c 'a && \\\n  b'").commands
    assert (found[-1].line, found[-1].place) == ("b", Place(2, 3))
    assert DETACHED in found[-1].wrappers
    assert (found[-1].where, found[-1].scope) == (Where.START, "box")


def test_docker_run_is_a_container_with_what_it_is_given() -> None:
    (one,) = unit("docker run -d --gpus all -e A=1 -v /x:/y --runtime runsc i:1 -m x").containers
    assert (one.image, one.runtime, one.gpus is not None) == ("i:1", "runsc", True)
    assert [(v.name, v.value) for v in one.env] == [("A", "1")]
    assert [mount.text for mount in one.mounts] == ["/x:/y"]


def test_loops_folders_and_excuses_are_known() -> None:
    text = "cd a\nwhile b; do\n  cd c; d || e\ndone\nif f; then g; fi\nh && i || j"
    found = {one.name: one for one in unit(text).commands}
    assert {name for name, one in found.items() if one.looped} == {"b", "cd", "d", "e"}
    assert {name for name, one in found.items() if one.tolerated} == {"b", "d", "f", "h", "i"}
    assert found["d"].folder == "a/c"


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    read = shell.parse(whole("a\n" * (shell.MOST_COMMANDS + 10)))
    assert read.cut
    assert len(read.commands) == shell.MOST_COMMANDS


def test_hostile_nesting_costs_no_recursion() -> None:
    for text in ("(" * 50_000, "$(" * 20_000, "if x; then " * 2_000, 'a "' * 9999):
        unit(text)


@given(st.text(alphabet="ab \n\"'\\$(){}<>|&;#=-EOF", max_size=200))
def test_no_text_is_too_odd(text: str) -> None:
    for command in unit(text).commands:
        assert 1 <= command.place.line <= text.count("\n") + 1
