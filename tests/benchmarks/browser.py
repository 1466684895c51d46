"""A key in the browser to the screen that shows it, beyond what a terminal takes.

Behind both is the same small program, which answers a key with a letter: what the console itself
takes is not in it. In the page, Chromium's event and its next drawn row count, on one clock.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from console.frontends.web import xterm
from tests.benchmarks.figures import Figure
from tests.benchmarks.opened import python
from tests.benchmarks.surroundings import CannotRun
from tests.ui.terminal import Terminal
from tests.waiting import until
from tests.web.conftest import ECHO, Door, opened
from tests.web.served import chromium

KEYS = 200
MAX_MS = 50.0
BETWEEN_S = 0.03
WATCH = """() => {
  window.took = [];
  let at = 0;
  window.addEventListener('keydown', () => { at = performance.now(); }, true);
  new MutationObserver(() => {
    if (at) { window.took.push(performance.now() - at); at = 0; }
  }).observe(document.querySelector('.xterm-rows'), { subtree: true, childList: true });
}"""


def run(say: Callable[[str], None]) -> list[Figure]:
    """One key after the other; the browser's p95 less the terminal's median is what counts."""
    if not xterm.installed():
        raise CannotRun("the terminal package is not here: omni-console web --fetch")
    terminal = _terminal()
    usual = statistics.median(terminal)
    return [
        Figure("key to screen in a terminal", "ms", terminal, of="p95"),
        Figure("key to screen in Chromium, beyond a terminal", "ms",
               [one - usual for one in _page()], MAX_MS, "p95"),
    ]  # fmt: skip


def _terminal() -> list[float]:
    took = []
    shown = Terminal(python(ECHO), dict(os.environ))
    try:
        shown.until("ready")
        for _ in range(KEYS):
            time.sleep(BETWEEN_S)
            held, begun = len(shown.raw), time.perf_counter()
            os.write(shown.master, b"k")
            while len(shown.raw) == held:
                time.sleep(0.0002)
            took.append((time.perf_counter() - begun) * 1e3)
    finally:
        shown.close()
    return took


def _page() -> list[float]:
    door = Door()
    try:
        with opened(door, write=True) as web, chromium() as browser:
            page: Any = browser.new_page()
            page.goto(f"{web.base}/enter#{web.access.link()}")
            page.wait_for_url(f"{web.base}/")
            page.goto(f"{web.base}/console")
            text = "document.querySelector('.xterm-rows')?.innerText || ''"
            until(lambda: "ready" in page.evaluate(text), "the program behind the page")
            page.evaluate(WATCH)
            for _ in range(KEYS):
                time.sleep(BETWEEN_S)
                page.keyboard.press("k")
            until(lambda: len(page.evaluate("took")) >= KEYS - 5, "every key is on the screen")
            return [float(one) for one in page.evaluate("took")]
    finally:
        door.close()
