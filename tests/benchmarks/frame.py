"""How soon the screen is full: the console with a run in it against an empty Textual app."""

from collections.abc import Callable

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Row, in_turns
from tests.benchmarks.opened import STEPS, Opened, python, shown

PAIRS = 12
MAX_RATIO = 1.5
FULL = (f"✓ step-{STEPS}", "● SERVING", "last run SUCCEEDED")
"""The last step in view, the baseline's word and the status line."""
EMPTY = """
from textual.app import App
from textual.widgets import Static

class Empty(App):
    def compose(self):
        yield Static("READY")

Empty().run()
"""


def run(say: Callable[[str], None]) -> list[Row]:
    """From exec to the last of the marks in the bytes of a pty, 80x24, bytecode cached."""
    with surroundings.workplace() as place, shown(place / "run") as show:

        def ours() -> float:
            with show.console() as opened:
                return opened.seen(*FULL)

        def empty() -> float:
            with Opened(python(EMPTY), show.environment()) as opened:
                return opened.seen("READY")

        times = in_turns({"ours": ours, "empty": empty}, PAIRS)
    return [Row("first full frame", "empty Textual app", times["ours"], times["empty"], MAX_RATIO)]
