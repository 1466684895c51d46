"""Shell text, Dockerfiles and YAML as their programs read them, and where each character stands."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console.checks.lint import shell
from console.checks.lint.commands import DETACHED
from console.checks.lint.dockerfile import expanded, instructions, json_words, unit_of
from console.checks.lint.run import shell_unit
from console.checks.lint.unit import Kind, Place, Source, Unit, Where, whole
from console.checks.lint.yaml_tree import parse


def unit(text: str) -> Unit:
    return unit_of(Source(Path("Dockerfile"), text, Kind.DOCKERFILE))


def words(text: str) -> list[list[str]]:
    return [[word.text for word in one.words] for one in unit(text).commands]


def test_a_here_document_may_have_a_space_where_its_end_is_there() -> None:
    text = "FROM x\nRUN cat > /x << 'EOF'\nimport y\nEOF\nRUN echo $((1 << N))\nRUN two\n"
    found, _, _ = instructions(text)
    assert [one.keyword for one in found] == ["FROM", "RUN", "RUN", "RUN"]
    assert [len(one.heredocs) for one in found] == [0, 1, 0, 0]


def test_continued_lines_are_one_and_comments_between_them_are_gone() -> None:
    text = "FROM x\nRUN one \\\n  # not this && two \\\n\n  three \\\n  && four\n"
    assert words(text) == [["one", "three"], ["four"]]
    (_, four) = unit(text).commands
    assert four.place == Place(6, 6)


SCRIPTS = {
    "RUN <<-A\n\tone\n\tA\nRUN three\nCOPY <<B <<C /\ntwo\nB\nfour\nC\nRUN five\n":
        ["one", "three", "five"],
    "RUN <<EOF\n#!/usr/bin/env python3\nimport torch\nEOF\n": [],
    "RUN <<EOF\none\ntwo": ["one", "two"],
    'SHELL ["powershell", "-c"]\nRUN Get-Item x | pkill -f y\n': [],
}  # fmt: skip


def test_a_here_document_is_a_script_where_a_shell_reads_it() -> None:
    for text, found in SCRIPTS.items():
        assert words(f"FROM x\n{text}") == [[word] for word in found]


def test_another_escape_character_is_honoured() -> None:
    found, _, escape = instructions("# escape=`\nFROM x\nRUN dir `\n  C:\\\nCMD x\n")
    assert escape == "`"
    assert [one.keyword for one in found] == ["FROM", "RUN", "CMD"]
    assert found[1].args.text.split() == ["dir", "C:\\"]


def test_a_here_document_for_a_program_is_what_it_reads() -> None:
    (command,) = unit("FROM x\nRUN python3 - <<EOF\nimport torch\nEOF\n").commands
    assert command.stdin is not None
    assert command.stdin.text == "import torch\n"
    assert command.stdin.at(7) == Place(3, 8)


def test_the_list_form_is_no_shell() -> None:
    (one,) = unit('FROM x\nCMD ["sh", "-x", "a && b", "\\"q\\""]\n').commands
    assert [word.text for word in one.words] == ["sh", "-x", "a && b", '"q"']
    assert one.words[2].place == Place(2, 18)
    assert json_words(whole('["a", 1]')) is None
    assert json_words(whole('["a" "b')) is None


def test_stages_inherit_and_arguments_are_filled_in() -> None:
    text = "ARG V=1\nFROM a:${V} AS one\nRUN apt-get install -y curl\nFROM one\nFROM b:${W:-2}\n"
    stages = unit(text).stages
    assert [(stage.base, stage.roots) for stage in stages] == [
        ("a:1", ()), ("a:1", ("one",)), ("b:2", ()),
    ]  # fmt: skip


def test_a_value_that_doubles_itself_does_not_grow_for_ever() -> None:
    text = "FROM x\n" + "ENV A=ab\n" + "ENV A=$A$A\n" * 60
    assert max(len(one.value) for one in unit(text).variables) <= 4096


def test_flags_and_devices_are_seen() -> None:
    (one,) = unit("FROM x\nRUN --mount=type=cache,target=/c --device=nvidia.com/gpu a b\n").commands
    assert (one.where, one.line, one.wrappers) == (Where.BUILD, "a b", ("device",))


def test_unknown_names_stay_as_they_are_written() -> None:
    assert expanded("$A-${B}-${C:-d}-$", {"A": "1"}) == "1-${B}-d-$"


@given(st.text(alphabet="FROMRUN \\\n\"'[]<EOF#=$a`\t", max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    lines = text.count("\n") + 1
    for command in unit("FROM x\n" + text).commands:
        assert 1 <= command.place.line <= lines + 1


TEXT = """\
# top # not two
a: &anchor   # behind
  plain: one two
  quoted: 'it is # no comment'
  escaped: "a\\tb"
  literal: |-
    first

      second # of the text
  folded: >
    three
    four
b:
  <<: *anchor
  plain: other
list: [x, "y z"]
"""


def test_merged_and_anchored_values_are_there() -> None:
    root = parse(TEXT).root
    assert root.text_at("b", "plain") == "other"
    assert root.text_at("b", "quoted") == "it is # no comment"
    assert root.get("b", "nothing", "below") is None


PLACES = {
    ("plain", "two"): Place(3, 14), ("quoted", "no"): Place(4, 20),
    ("literal", "second"): Place(9, 7), ("folded", "four"): Place(12, 5),
    ("escaped", "b"): Place(5, 12),
}  # fmt: skip


def test_a_word_in_a_value_stands_where_it_is_written() -> None:
    for (key, word), place in PLACES.items():
        node = parse(TEXT).root.get("a", key)
        assert node is not None
        assert node.inner is not None
        assert node.inner.at(node.inner.text.index(word)) == place


def test_comments_are_those_that_are_no_part_of_a_value() -> None:
    found = [(one.text, one.place, one.own) for one in parse(TEXT).comments]
    assert found == [("# top # not two", Place(1, 1), True), ("# behind", Place(2, 14), False)]


def test_a_bomb_of_aliases_is_no_bomb() -> None:
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    assert parse("\n".join(rows)).root.get("a39") is not None


def read(text: str) -> Unit:
    return shell_unit(Source(Path("x.sh"), text, Kind.SHELL))


def lines(text: str) -> list[str]:
    return [command.line for command in read(text).commands]


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
    found = read("docker exec -d box bash -c 'a && \\\n  b'").commands
    assert (found[-1].line, found[-1].place) == ("b", Place(2, 3))
    assert DETACHED in found[-1].wrappers
    assert (found[-1].where, found[-1].scope) == (Where.START, "box")


def test_docker_run_is_a_container_with_what_it_is_given() -> None:
    (one,) = read("docker run -d --gpus all -e A=1 -v /x:/y --runtime runsc i:1 -m x").containers
    assert (one.image, one.runtime, one.gpus is not None) == ("i:1", "runsc", True)
    assert [(v.name, v.value) for v in one.env] == [("A", "1")]
    assert [mount.text for mount in one.mounts] == ["/x:/y"]


def test_loops_folders_and_excuses_are_known() -> None:
    text = "cd a\nwhile b; do\n  cd c; d || e\ndone\nif f; then g; fi\nh && i || j"
    found = {one.name: one for one in read(text).commands}
    assert {name for name, one in found.items() if one.looped} == {"b", "cd", "d", "e"}
    assert {name for name, one in found.items() if one.tolerated} == {"b", "d", "f", "h", "i"}
    assert found["d"].folder == "a/c"


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    read = shell.parse(whole("a\n" * (shell.MAX_COMMANDS + 10)))
    assert read.cut
    assert len(read.commands) == shell.MAX_COMMANDS


def test_hostile_nesting_costs_no_recursion() -> None:
    for text in ("(" * 50_000, "$(" * 20_000, "if x; then " * 2_000, 'a "' * 9999):
        read(text)


@given(st.text(alphabet="ab \n\"'\\$(){}<>|&;#=-EOF", max_size=200))
def test_no_shell_text_is_too_odd(text: str) -> None:
    for command in read(text).commands:
        assert 1 <= command.place.line <= text.count("\n") + 1
