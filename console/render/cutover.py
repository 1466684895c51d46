"""Who serves the baseline's clients during a cutover, in words. Pure."""

from __future__ import annotations

from console.common.text import clean, one_line
from console.journal.run_view import RunView

BACK = "omni-console rollback brings the baseline back"


def cut_over(view: RunView) -> str:
    """`CUT OVER to ik, not promoted`, and whether that one is silent, where somebody has asked it;
    empty while no candidate has the production port."""
    if not view.cutover:
        return ""
    silent = one_line(view.cutover.silent, 200)
    return f"CUT OVER to {service(view)}, {state(view)}" + (f", {silent}" if silent else "")


def service(view: RunView) -> str:
    return one_line(view.cutover.service, 60)


def state(view: RunView) -> str:
    """Promoted by whom, not promoted, being watched, or not proven yet; if the runner is dead, that
    nobody watches or no relay is left (console.journal.run_files.relay_state)."""
    what = view.cutover.what
    if what == "promoted":
        return f"promoted by {one_line(view.cutover.who, 60)}"
    words = {
        "stays": "not promoted", "proven": "being watched", "switched": "not proven yet",
        "unwatched": "watched by nobody: its runner is gone",
        "gone": "but its relay is gone",
    }  # fmt: skip
    return words.get(what, what)


def next_words(view: RunView) -> str:
    """What the operator can do now, for the report."""
    url = clean(view.cutover.url, 200)
    if view.cutover.what == "promoted":
        return (
            f"{cut_over(view)}: it answers at {url}, by a relay that does not survive a reboot. "
            f"`{BACK.partition(' brings')[0]}` still returns to the baseline of the site file; "
            "`omni-console promote` prints the lines that change that."
        )
    return (
        f"{cut_over(view)}: it answers at {url}, no guard watches any more, and a reboot ends it. "
        "`omni-console promote --why …` accepts it, `omni-console rollback` goes back."
    )
