"""Every screen of the real console beside planted secrets: none of them is drawn."""

from pathlib import Path

import pytest

from console.frontends.tui.app import ConsoleApp
from tests.canary.planting import SECRET, Canaries, leaks
from tests.testbed.nvml import Nvml
from tests.ui import scene
from tests.ui.opened import console
from tests.ui.test_hostile import SHOWN, shown, unvisited, walked


@pytest.mark.alone
@pytest.mark.full
def test_no_screen_shows_a_secret(tmp_path: Path, nvml: Nvml) -> None:
    words = Canaries()
    walk = walked(tmp_path / "place", words, nvml)
    assert SHOWN - shown(walk) == set()
    assert unvisited(walk) == set()
    assert leaks(words, walk.shown) == set()
    assert SECRET.findall(walk.sent.decode("utf-8", "replace")) == []
    assert "*****" in walk.shown


async def test_the_screens_end_without_the_values_of_variables(tmp_path: Path) -> None:
    """Textual's own traceback prints them, and they are foreign text as it came."""
    async with console(scene.running(), scene.run_dir(tmp_path)) as (app, _, _):
        assert isinstance(app, ConsoleApp)
        ended(app)
        told = "".join(str(one) for one in app._exit_renderables)
        app._exit_renderables.clear()
        app._exception = None
    assert "--api-key ***** --port 1" in told
    assert "s3cret" not in told


def ended(app: ConsoleApp) -> None:
    line = "cannot read: llama-server --api-key s3cret --port 1"
    try:
        raise ValueError(line)
    except ValueError as error:
        app._exception = error
        app._fatal_error()
