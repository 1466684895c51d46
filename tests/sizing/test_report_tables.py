"""The tables of docs/measurements/memory.md are those of the code."""

from tests.sizing import reports


def test_the_page_has_todays_verdicts() -> None:
    page = reports.PAGE.read_text("utf-8")
    assert page.endswith(reports.text()), "python -m tests.sizing.reports --write"


def test_no_more_is_wrong_than_what_is_named() -> None:
    wrong = [(reports.against(row, verdict), row["source"]) for row, verdict, _ in reports.rows()]
    known = {*reports.gguf.OLD, *reports.gguf.CAREFUL, *reports.safetensors.OLD}
    careful = tuple(name[:40] for name in reports.safetensors.CAREFUL)
    left = [one for one in wrong if one[0] and one[1] not in known]
    assert [one for one in left if not one[1].startswith(careful)] == []
