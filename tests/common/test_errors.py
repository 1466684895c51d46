"""The table of exit codes, errors as an operator reads them, and the command line's own."""

import inspect
import json

import pytest

from console.cli import main
from console.common import errors
from console.common.errors import ConsoleError, Exit, InvalidFile, Problem
from console.common.output import EXIT_MEANING
from console.config.yaml import Document

CODES = {
    "ConsoleError": 1, "UsageError": 2, "InvalidFile": 2, "EngineError": 5, "EngineTimeout": 5,
    "ServiceError": 5, "HostBusy": 8, "BaselineNotReady": 5, "ControlError": 5,
    "RollbackFailed": 7,
}  # fmt: skip


def tree() -> dict[str, type[ConsoleError]]:
    return {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, ConsoleError)
    }


def test_every_error_has_its_code() -> None:
    assert {name: int(kind.exit_code) for name, kind in tree().items()} == CODES


def test_the_tree_at_the_top_of_the_module_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    assert [name for name in tree() if name not in drawn] == []


def test_help_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    from console.cli import main

    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert [words for code, words in EXIT_MEANING.items() if f"{code} {words}" not in shown] == []
    assert set(EXIT_MEANING) == set(Exit)


def test_an_error_is_title_detail_and_hint() -> None:
    error = ConsoleError("it broke", "here\nand there", "mend it")
    assert error.lines() == ["it broke", "  here", "  and there", "  hint: mend it"]
    assert str(error) == "it broke: here; and there"
    assert ConsoleError("it broke").lines() == ["it broke"]


def test_a_problem_names_its_place() -> None:
    problem = Problem("f.yaml", 3, 7, "wrong", "right", "try")
    assert str(problem) == "f.yaml:3:7: wrong; expected right (hint: try)"
    assert str(Problem("f.yaml", 3, 7, "wrong")) == "f.yaml:3:7: wrong"


def test_problems_come_once_and_in_the_order_of_the_file() -> None:
    document = Document("f")
    for line, column in ((9, 1), (2, 5), (2, 1), (9, 1)):
        document.add(Problem("f", line, column, "x"))
    problems = sorted(document.problems)
    assert [(p.line, p.column) for p in problems] == [(2, 1), (2, 5), (9, 1)]
    error = InvalidFile("bad", problems, "hint")
    assert error.lines() == ["bad", "  f:2:1: x", "  f:2:5: x", "  f:9:1: x", "  hint: hint"]
    assert error.problems == problems


def test_bad_usage_is_one_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "--json", "--nope"])
    assert ended.value.code == Exit.USAGE
    assert json.loads(capsys.readouterr().out)["exit_code"] == Exit.USAGE


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["rollbak"], "did you mean 'rollback'?"),
        (["tell", "x", "aprove"], "did you mean 'approve'?"),
        (["run", "lazarus"], "did you mean operation-lazarus?"),
        (["run", "demoo"], "did you mean demo?"),
        (["runer"], "did you mean 'run'?"),  # and not the internal one
    ],
)
def test_a_slip_of_the_keys_is_told_what_was_meant(
    argv: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(argv)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert meant in capsys.readouterr().err


def test_nothing_alike_is_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["zzzzzz"])
    assert "did you mean" not in capsys.readouterr().err


def test_an_error_of_several_lines_is_one_line_as_text() -> None:
    """What a program printed stands in a report, a journal and a dialog, and on one line each."""
    error = ConsoleError("compose failed", "service a\n\n  no image\nexit 1")
    assert str(error) == "compose failed: service a; no image; exit 1"
    assert error.lines() == ["compose failed", "  service a", "  ", "    no image", "  exit 1"]
