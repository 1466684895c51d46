"""The single registry of keys for bindings, footer, help, palette and docs/reference/keys.md.

A scope is where a key works. `app` keys work everywhere; the others while their screen or widget
has the focus. `changes` marks what alters anything (refused under --readonly); `dangerous` what
stops something.
"""

from __future__ import annotations

from dataclasses import dataclass

SCOPES = {
    "app": "Everywhere", "run": "Current run", "log": "The log pane, when it has the focus",
    "runs": "The list of runs", "plan": "A playbook's plan", "preflight": "Preflight",
    "lessons": "The lessons",
}  # fmt: skip
"""Names of the scopes in the help and in the list of keys."""
OWNERS = {
    "app": "console/frontends/tui/app.py", "run": "screens/operations.py",
    "log": "widgets/log_pane.py", "runs": "screens/runs.py", "plan": "screens/playbooks.py",
    "preflight": "screens/machine.py", "lessons": "screens/lessons.py",
}  # fmt: skip
"""Where the `action_<id>` of a scope's keys are, or what has them inherits them from."""


@dataclass(frozen=True, slots=True)
class Action:
    """What a key does. `id` names the method `action_<id>`; `keys` in Textual's names."""

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    scope: str
    changes: bool = False
    dangerous: bool = False
    footer: bool = True

    @property
    def shown(self) -> str:
        """The keys as a person reads them."""
        return " ".join(_KEY_NAMES.get(key, key) for key in self.keys)

    @property
    def first(self) -> str:
        """The key that a footer shows."""
        return _KEY_NAMES.get(self.keys[0], self.keys[0])


_KEY_NAMES = {
    "f12": "F12", "ctrl+backslash": "^\\", "ctrl+p": "^P", "question_mark": "?", "colon": ":",
    "escape": "Esc", "slash": "/", "left_square_bracket": "[", "right_square_bracket": "]",
    "ampersand": "&", "enter": "Enter", "space": "Space", "home": "Home", "end": "End", "plus": "+",
    "f1": "F1",
}  # fmt: skip

EMERGENCY = Action(
    "emergency", ("f12", "ctrl+backslash"), "ROLL BACK",
    "Emergency: stops the candidates and brings the baseline back, now, from any screen. It acts "
    "at once, asks nothing and deletes nothing; pressing it twice does no harm.",
    "app", changes=True, dangerous=True,
)  # fmt: skip

ACTIONS: tuple[Action, ...] = (
    EMERGENCY,
    Action("show_help", ("question_mark", "f1"), "Help", "What every key does, and what can be done now.", "app"),
    Action("command_palette", ("ctrl+p", "colon"), "Commands", "Find an action by its name.", "app", footer=False),
    Action("operations", ("1",), "Run", "The current run: steps, gauges, log.", "app", footer=False),
    Action("playbooks", ("2",), "Playbooks", "Pick a playbook, fill its inputs, read its plan, start it.", "app"),
    Action("runs", ("3",), "Runs", "Every run, newest first; Enter shows one.", "app"),
    Action("host", ("4",), "Host", "What `omni-console doctor` says about this machine.", "app", footer=False),
    Action("preflight", ("5",), "Preflight", "Can a checkpoint work here? Size, architecture and memory before a download.", "app", footer=False),
    Action("lessons", ("6",), "Lessons", "Lessons of earlier trials; those that apply to the step, plan or playbook shown come first.", "app", footer=False),
    Action("hosts", ("7",), "Hosts", "The hosts of the fleet file and what each does; Enter opens one's own console.", "app", footer=False),
    Action("prove", ("v",), "Verify", "Ask the baseline for one short completion, now, and note the answer.", "app", footer=False),
    Action("toggle_mouse", ("M",), "Mouse", "Mouse on or off; off lets the terminal select text.", "app", footer=False),
    Action("next_theme", ("T",), "Colours", "The next theme: dark, light, colour-blind safe, the terminal's own sixteen colours. It is remembered.", "app", footer=False),
    Action("back", ("escape",), "Back", "Leave a dialog, a search or a screen. Never stops anything.", "app", footer=False),
    Action("leave", ("q",), "Quit", "Close the console. A run goes on without it.", "app"),
    # the run on show
    Action("next", ("n",), "Next", "Run the next step, then pause; while the log is searched, n and N go to its matches.", "run", changes=True),
    Action("auto", ("a",), "Auto", "Run on to the next gate or approval.", "run", changes=True),
    Action("pause", ("p",), "Pause", "Pause after the current step.", "run", changes=True),
    Action("approve", ("y",), "Approve", "Answer an approval, or override a gate that holds (with a reason). Asks for a typed word if the playbook wants one.", "run", changes=True),
    Action("reject", ("N",), "Reject", "Turn an approval down.", "run", changes=True),
    Action("retry", ("r",), "Retry", "Try the failed step again, or measure again what a gate lacks; an input may be changed first.", "run", changes=True),
    Action("skip", ("s",), "Skip", "Leave the step out. Needs a reason.", "run", changes=True),
    Action("abort", ("x",), "Abort", "Stop the run and roll back what it started. Asks first.", "run", changes=True, dangerous=True),
    Action("resume", ("u",), "Resume", "Resume a run whose runner died.", "run", changes=True),
    Action("report", ("o",), "Report", "Read the run's report.", "run"),
    Action("breach", ("b",), "Breach", "What the guard stopped and why: the curve before, what was killed, what to do next; or its limits, if nothing was.", "run"),
    Action("focus_log", ("l",), "Log", "Put the focus on the log pane.", "run", footer=False),
    Action("zoom", ("z", "plus"), "Zoom", "The log pane over the whole screen, and back.", "run", footer=False),
    Action("source_next", ("right_square_bracket",), "Next log", "The log of the next service or step.", "run", footer=False),
    Action("source_previous", ("left_square_bracket",), "Previous log", "The log of the previous service or step.", "run", footer=False),
    # the log pane, when it has the focus
    Action("follow", ("f",), "Follow", "Follow the end of the log; scrolling up pauses, this or G goes on.", "log"),
    Action("bottom", ("G", "end"), "End", "Go to the newest line and follow.", "log", footer=False),
    Action("top", ("g", "home"), "Top", "Go to the oldest line kept.", "log", footer=False),
    Action("search", ("slash",), "Search", "Search: a regular expression, or plain text if it is not one.", "log"),
    Action("match_next", ("n",), "Next match", "The next match further down.", "log", footer=False),
    Action("match_previous", ("N",), "Previous match", "The next match further up.", "log", footer=False),
    Action("filter", ("ampersand",), "Filter", "Show matching lines only; begin with ! for those that do not match; empty shows all.", "log"),
    Action("error_next", ("e",), "Next error", "The next line that looks like an error.", "log"),
    Action("error_previous", ("E",), "Previous error", "The previous line that looks like an error.", "log", footer=False),
    Action("timestamps", ("t",), "Times", "Show or hide the time stamps.", "log", footer=False),
    Action("wrap", ("w",), "Wrap", "Wrap long lines, or cut them at the edge.", "log"),
    # the list of runs
    Action("mark", ("space",), "Mark", "Mark the run under the cursor to be compared, or take its mark away.", "runs"),
    Action("compare", ("c",), "Compare", "The marked runs side by side: inputs that differ, figures, decision, what went wrong.", "runs"),
    # playbooks, the form and the plan
    Action("start", ("S",), "Start", "Start the run that the plan shows.", "plan", changes=True),
    Action("edit", ("i",), "Inputs", "Back to the inputs.", "plan"),
    Action("ask", ("enter", "i"), "Ask", "What to look at: repository, address or file, and how it is loaded.", "preflight"),
    Action("suggest", ("w",), "What fits", "Which of the repository's quantizations fit this machine, placed how, with how much context.", "preflight"),
    # the lessons
    Action("filter_lessons", ("slash",), "Search", "Search the lessons: every word has to be in one; empty shows all.", "lessons"),
    Action("due", ("d",), "Due", "Only what is due for review, or all again.", "lessons"),
)  # fmt: skip


def of_scope(scope: str) -> tuple[Action, ...]:
    """The actions of one scope, in the registry's order."""
    return tuple(action for action in ACTIONS if action.scope == scope)


def action(action_id: str) -> Action:
    """One action by id; KeyError if there is none."""
    return {entry.id: entry for entry in ACTIONS}[action_id]
