"""Which servers of a run are watched while one of them is measured."""

from types import SimpleNamespace
from typing import Any

import pytest

from console.journal.run_view import ClientsElsewhere
from console.runner.executors.benchmark import beside, users_of

URLS = {"baseline": "http://b", "cand": "http://c", "side": "http://s", "cutover": "http://b"}


def context(handles: tuple[str, ...], cutover: str = "") -> Any:
    view = SimpleNamespace(
        cutover=ClientsElsewhere(service=cutover, what="stays") if cutover else ClientsElsewhere()
    )
    services = SimpleNamespace(
        handles=dict.fromkeys(handles), spec=lambda name: SimpleNamespace(url=URLS[name])
    )
    return SimpleNamespace(view=view, services=services)


@pytest.mark.parametrize(
    ("measured", "handles", "cutover", "others"),
    [
        ("cand", ("cand",), "", ["baseline"]),
        ("baseline", ("cand", "side"), "", ["cand", "side"]),
        # clients of the baseline's address are at the candidate: one server, three names
        ("cand", ("cand", "cutover"), "cand", []),
        ("baseline", ("cand", "cutover"), "cand", []),
        ("side", ("cand", "side", "cutover"), "cand", ["baseline", "cand"]),
    ],
)
def test_the_others(
    measured: str, handles: tuple[str, ...], cutover: str, others: list[str]
) -> None:
    found = context(handles, cutover)
    assert beside(found, measured) == others
    users = users_of(found, measured)
    assert users.server.url == URLS[measured]
    assert [asked.name for asked in users.others] == others
