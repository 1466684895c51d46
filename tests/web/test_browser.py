"""The pages in a real Chromium: a playbook in the terminal, answers and the rollback from a
telephone, and what a foreign page cannot do."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from console.frontends.web import xterm
from console.frontends.web.terminal import MAX_MESSAGE
from tests.runner.e2e.sites import book
from tests.testbed.cache import Unavailable
from tests.ui.place import LONG, Place, placed
from tests.waiting import until
from tests.web.served import Served, chromium, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.full, pytest.mark.alone]
TELEPHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 800}
ASK = "id: ask, approval: {prompt: 'Do the <b>answers</b> make sense?', confirm: yes-please}"
SCREEN = "document.querySelector('.xterm-rows').innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as found:
            yield found
    except Unavailable as error:
        pytest.skip(error.reason)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A site whose baseline serves, with the terminal package where npm brings it."""
    with placed(tmp_path_factory.mktemp("web") / "place") as made:
        made.env["XDG_DATA_HOME"] = str(made.root / "data")
        yield made


@pytest.fixture(scope="module")
def emulator(place: Place) -> None:
    """The real xterm.js: the test is skipped where it cannot be had."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("XDG_DATA_HOME", place.env["XDG_DATA_HOME"])
        try:
            xterm.fetch(os.environ.get("OMNI_XTERM", ""))
        except Exception as error:
            pytest.skip(f"{xterm.PACKAGE} {xterm.VERSION} cannot be had: {error}")


@pytest.fixture(autouse=True)
def no_run(place: Place) -> Iterator[None]:
    """A run that a test leaves behind is ended, and the baseline serves for the next one."""
    yield
    if place.runs and not place.view().over:
        place.console("rollback")


@pytest.fixture
def write(place: Place) -> Iterator[Served]:
    with served(place, "--write") as web:
        yield web


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport=TELEPHONE)
    made.set_default_timeout(60_000)
    yield made
    made.close()


def entered(context: BrowserContext, web: Served) -> Page:
    """A page that came in by a link, and what its policy or its scripts complain of."""
    page = context.new_page()
    page.goto(web.link())
    page.wait_for_url(f"{web.base}/")
    page.wait_for_selector("#baseline-word >> text=/SERVING|DOWN/")
    return page


def complaints(page: Page) -> list[str]:
    found: list[str] = []
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def console(context: BrowserContext, web: Served) -> Page:
    """The terminal page with the real console on it."""
    page = context.new_page()
    page.set_viewport_size(DESKTOP)
    page.goto(f"{web.base}/console")
    shows(page, "Help")
    return page


def shows(page: Page, *words: str) -> None:
    """Wait until the terminal shows these. The page's policy forbids to have it wait itself."""

    def text() -> str:
        return str(page.evaluate(SCREEN)).replace("\xa0", " ")

    until(lambda: all(word in text() for word in words), repr(words), where=text)


def over(place: Place) -> str:
    return until(lambda: place.view().over and str(place.view().state), "the run is over")


def test_a_playbook_is_stepped_through_in_the_terminal(
    place: Place, emulator: None, write: Served, context: BrowserContext
) -> None:
    place.stepping()
    entered(context, write)
    page = console(context, write)
    said = complaints(page)
    for step in ("one", "two", "three"):
        shows(page, f"Paused before {step}")
        page.keyboard.press("n")
    assert over(place) == "succeeded"
    shows(page, "SUCCEEDED")
    page.set_viewport_size(TELEPHONE)
    shows(page, "SUCCEEDED")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert said == [], "nothing of the emulator offends the policy"
    page.keyboard.press("q")
    page.wait_for_selector("#again >> visible=true")
    box = page.locator("#rollback-ask").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 360, "beside what is said of the end, too"
    page.click("#again")
    shows(page, "Help")


def test_without_the_emulator_the_page_says_how_to_get_it(
    place: Place, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(place.env, "XDG_DATA_HOME", str(place.root / "empty"))
    with served(place) as web:
        page = entered(context, web)
        page.goto(f"{web.base}/console")
        words = page.locator("#missing")
        words.wait_for(state="visible")
        box = words.bounding_box()
        assert "omni-console web --fetch" in words.inner_text()
        assert box is not None
        assert box["y"] + box["height"] < TELEPHONE["height"], "in sight without scrolling"


def test_a_new_link_opens_in_the_tab_that_has_refused_an_old_one(
    write: Served, context: BrowserContext
) -> None:
    page = context.new_page()
    page.goto(f"{write.base}/enter#of-yesterday")
    page.wait_for_selector("text=it prints a new link")
    page.goto(write.link())  # of the same page: nothing is loaded
    page.wait_for_url(f"{write.base}/")
    page.click("#leave")
    page.wait_for_url(f"{write.base}/enter")
    page.goto(write.link())
    page.wait_for_url(f"{write.base}/")


def test_the_terminal_page_says_why_it_stands_still(
    emulator: None, write: Served, context: BrowserContext
) -> None:
    entered(context, write)
    page = console(context, write)
    write.child.send_signal(signal.SIGSTOP)
    try:
        page.wait_for_selector("#told >> text=the server does not answer; what is shown may be old")
    finally:
        write.child.send_signal(signal.SIGCONT)
    until(lambda: not page.inner_text("#told"), "it answers again")
    page.context.clear_cookies()
    page.reload()
    page.wait_for_selector("#told >> text=No session: press Enter where omni-console web runs")
    page.click("#again")
    page.wait_for_selector("#told >> text=No session: press Enter where omni-console web runs")


PASTE = """(text) => {
  const data = new DataTransfer();
  data.setData('text/plain', text);
  document.querySelector('.xterm-helper-textarea').dispatchEvent(
    new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def test_a_long_paste_does_not_end_the_console(
    emulator: None, write: Served, context: BrowserContext
) -> None:
    entered(context, write)
    page = console(context, write)
    page.evaluate(PASTE, "\u00e9" * MAX_MESSAGE)
    page.keyboard.press("?")
    shows(page, "Everywhere")
    assert not page.is_visible("#again")


HIDE = """(hidden) => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_terminal_page_in_the_background_renews_no_lease(
    place: Place, emulator: None, write: Served, context: BrowserContext
) -> None:
    place.detach(place.write("ask.yaml", book(ASK, name="ask")), "--lease", "1h")
    place.state("waiting_approval")
    entered(context, write).close()  # it would be somebody who looks
    page = console(context, write)

    def attended() -> bool:
        return bool(json.loads(place.console("show", "--json").out)["guard"]["attended"])

    until(attended, "whoever sees the page is attached")
    page.evaluate(HIDE, True)
    until(lambda: not attended(), "nobody is")
    page.evaluate(HIDE, False)
    until(attended, "again")
    place.tell("abort")
    over(place)


def test_f12_is_the_consoles_key_and_the_button_asks_first(
    place: Place, emulator: None, write: Served, context: BrowserContext
) -> None:
    place.outage()
    entered(context, write)
    page = console(context, write)
    page.click("#rollback-ask")
    page.wait_for_selector("#sure >> visible=true")
    assert place.run.id in page.inner_text("#sure-run")
    page.keyboard.press("F12")
    page.click("#sure-no")
    assert place.stages() == [], "nothing happens before it is confirmed"
    page.click("h1")  # the focus is outside of the terminal
    page.keyboard.press("F12")
    assert over(place) == "rolled_back"
    assert place.serves()
    shows(page, "ROLLED BACK")
    page.focus(".xterm-helper-textarea")
    page.keyboard.press("Escape")
    shows(page, "o Report")  # behind it; at once both keys would be one, Alt-q
    page.keyboard.press("q")
    page.wait_for_selector("#again >> visible=true")
    page.keyboard.press("F12")
    page.wait_for_selector("#sure >> visible=true")


def test_an_approval_and_the_rollback_from_a_telephone(
    place: Place, write: Served, context: BrowserContext, tmp_path: Path
) -> None:
    page = entered(context, write)
    said = complaints(page)
    place.detach(place.write("ask.yaml", book(ASK, LONG, name="ask")))
    place.state("waiting_approval")
    page.wait_for_selector("#question-box >> visible=true")
    assert "<b>answers</b>" in page.inner_text("#question-lines"), "text of others is no markup"
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.wait_for_timeout(800)  # a question that has just appeared takes no answer
    page.click("#approve")
    page.wait_for_selector("#told >> text=yes-please")
    assert place.status()["state"] == "waiting_approval"
    page.fill("#typed", "yes-please")
    page.route("**/api/verb", lambda route: route.abort())
    page.click("#approve")
    page.wait_for_selector("#told >> text=approve: no answer came, but it may have been done")
    page.unroute("**/api/verb")
    page.dblclick("#approve")
    until(lambda: place.status().get("step") == "long", "the next step runs")
    assert page.wait_for_selector("#step-name >> text=long")
    assert "newer" not in page.inner_text("#told"), "a second tap is no second answer"
    page.click("#rollback-ask")
    page.click("#sure-yes")
    assert over(place) == "rolled_back"
    page.wait_for_selector("#rollback-words >> text=the baseline serves")
    page.wait_for_selector("#run-word >> text=rolled back")
    refused = ("409", "ERR_FAILED")
    assert not [one for one in said if not any(x in one for x in refused)], "nothing else"


def test_what_is_typed_stays_while_the_runner_is_silent_for_a_moment(
    place: Place, write: Served, context: BrowserContext
) -> None:
    page = entered(context, write)
    place.detach(place.write("ask.yaml", book(ASK, LONG, name="ask")))
    place.state("waiting_approval")
    page.wait_for_selector("#question-box >> visible=true")
    page.fill("#typed", "yes-pl")
    os.kill(place.runner()[0], signal.SIGSTOP)
    try:
        page.wait_for_selector("#question-box", state="hidden")
    finally:
        os.kill(place.runner()[0], signal.SIGCONT)
    page.wait_for_selector("#question-box >> visible=true")
    assert page.input_value("#typed") == "yes-pl"
    place.tell("abort")
    over(place)


def test_read_only_shows_everything_and_changes_nothing(
    place: Place, emulator: None, context: BrowserContext
) -> None:
    place.detach(place.write("ask.yaml", book(ASK, LONG, name="ask")))
    place.state("waiting_approval")
    before, runner = place.status(), place.runner()
    with served(place) as web:
        page = entered(context, web)
        page.wait_for_selector("#question-box >> visible=true")
        for button in ("#approve", "#reject", "#typed", "#rollback-ask"):
            assert not page.is_visible(button)
        terminal = console(context, web)
        terminal.keyboard.press("y")
        shows(terminal, "read-only")
        for key in ("N", "p", "x", "r", "s", "n", "a", "u", "F12", "Control+\\"):
            terminal.keyboard.press(key)
        terminal.keyboard.press("?")
        shows(terminal, "Everywhere")  # so the keys before it have been taken
        for verb in ("approve", "reject", "rollback", "abort"):
            answer: Any = page.evaluate(
                """async (verb) => { const { ask } = await import('/omni.js');
                const { answer: facts } = await ask('/api/status');
                return ask('/api/verb', { verb, ...facts.seen, confirm: 'yes-please' }); }""", verb
            )  # fmt: skip
            assert (answer["status"], "read-only" in answer["answer"]["error"]) == (403, True)
    assert (place.status(), place.runner()) == (before, runner)
    assert place.tell("abort").code == 0
    over(place)


FOREIGN = """async ([base, key]) => {
  const post = (mode) => fetch(base + '/api/verb', {
    method: 'POST', mode, credentials: 'include', body: '{"verb": "rollback", "run": null}',
  }).then((got) => got.type + got.status, () => 'refused');
  const read = () => fetch(base + '/api/status', {
    credentials: 'include', headers: { 'x-omni-key': key } }).then(() => 'read', () => 'refused');
  const socket = () => new Promise((tell) => {
    const one = new WebSocket(base.replace('http', 'ws') + '/api/console');
    one.onopen = () => tell('open');
    one.onerror = () => tell('refused');
  });
  const frame = () => new Promise((tell) => {
    const one = document.createElement('iframe');
    one.src = base + '/';
    one.onload = () => {
      try { tell(one.contentWindow.location.href ? 'framed' : ''); } catch { tell('refused'); }
    };
    document.body.append(one);
  });
  return [await post('cors'), await post('no-cors'), await read(), await socket(), await frame()];
}"""


def test_a_foreign_page_and_a_used_link_reach_nothing(
    place: Place, write: Served, context: BrowserContext, browser: Browser
) -> None:
    """The foreign page comes from another port of the same host name, which gets the cookie."""
    page = entered(context, write)
    link = f"{write.base}/enter#{write.token}"
    key = page.evaluate("localStorage.getItem('omni-console-key')")
    handler = http.server.SimpleHTTPRequestHandler
    handler.log_message = lambda *words: None  # type: ignore[method-assign]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        foreign = context.new_page()
        foreign.goto(f"http://127.0.0.1:{other.server_address[1]}/")
        found = foreign.evaluate(FOREIGN, [write.base, key])
        other.shutdown()
    assert found == ["refused"] * 5
    page.wait_for_selector("#run-word >> visible=true", state="attached")
    assert not page.is_visible("#rollback-box"), "what was posted blindly did nothing"
    thief = browser.new_context()
    stolen = thief.new_page()
    stolen.goto(link)
    stolen.wait_for_selector("text=works once")
    assert "#" not in stolen.url
    assert stolen.evaluate("fetch('/api/status').then((got) => got.status)") == 401
    thief.close()
    assert page.evaluate("fetch('/api/status').then((got) => got.status)") == 401, "the key counts"
