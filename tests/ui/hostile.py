"""Text that wants to act on a terminal, what of it reached one, and a place full of it."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.fleet.inventory import load_fleet
from console.host import process
from console.journal.run_dir import RunDir, RunMeta
from console.journal.state import RunState
from console.journal.store import Journal
from console.recovery.rollback import live, records
from console.recovery.rollback.trigger import FIFO
from console.runner.control import Control, Server
from tests.testbed.nvml import RTX_5090, RTX_PRO_6000, Nvml
from tests.ui.place import Place

SURE = "\x1b[913;937H\u202e\x9b2J"
"""At the head of every hostile text, so that no cut can leave them out."""
ACTING = (
    "\x1b]52;c;T01OSVBXTg==\x07", "\x1b]8;;http://evil.example/\x1b\\l\x1b]8;;\x1b\\",
    "\x1b]0;owned\x07", "\x1b[2J", "\x1bP1$r0m\x1b\\", "\x1b_Gf=1;AA\x1b\\",
    "\x1b^pm\x1b\\", "\x1bXsos\x1b\\", "\x1bc", "\x1b(0", "\x1b[?1003h", "\x1b[6n", "\x1b[21t",
    "\x9d52;c;QQ==\x9c", "\x90q\x9c", "\x9f\x9e\x98\x85\x84", "\a\b\v\f\x0e\x0f\x7f\x05", "\x1b",
    "\u2066\u2067\u2068\u202a\u202d\u200e\u200f\u061c\u2028\u2029", "\u200b\u2060\ufeff",
    "\U000e0001\U000e0041", "e" + "\u0301" * 200, "\t\t",
)  # fmt: skip
PLAIN = (
    "[/]", "[/red]", "[red]r", "[@click=app.quit]x[/]", "[link=http://evil]y", "[", "漢字漢字",
    "👩‍👩‍👧‍👦🏳️‍🌈", "\\x1b[2J", "${HOME}$(id)`id`", "%s{0}{x!r}", "\x1b[5;58;5;77mX",
)  # fmt: skip
"""Text that only a careless program takes for more; and a colour, which no kind of sequence is."""
PAYLOADS = (*ACTING, *PLAIN)
RAW = b"\x00\x9b31m\x9d52;c;QQ==\x07\xff\xfe\xc3 \xe2\x80 \xed\xa0\x80 \xf0\x9f"
CSI = re.compile(r"\x1b\[([<-?]?)([0-9;:]*)([ -/]*[@-~])")
OTHER = re.compile(r"\x1b(?:\](\d*)[^\x07\x1b]*\x07?|([ -/]*[0-Z\\^-~]))")
FLOOD = re.compile("[\u0300-\u036f]{5}")
BIDI = frozenset("\u061c\u200b\u200e\u200f\u2028\u2029\u2060\ufeff")
TURNS = {"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
FINE = frozenset("\r\n\x1b\a\u200d")
"""Line ends, escapes (looked at apart), the bell of a field that is full, what joins emoji."""


class Words:
    """Foreign text for a named place: a tag to know it by, then payloads, each place others."""

    def __init__(self, hostile: bool) -> None:
        self.hostile = hostile
        self.tags: dict[str, str] = {}

    def __call__(self, place: str, most: int = 0) -> str:
        """One text; `most` characters where what it is put into takes no more."""
        number = len(self.tags)
        tag = self.tags.setdefault(place, f"Zq{number:02d}x")
        if not self.hostile:
            return tag
        at = number * 5 % len(PAYLOADS)
        text = tag + SURE + " ".join(PAYLOADS[at:] + PAYLOADS[:at])
        return text[:most] if most else text

    def data(self, place: str) -> bytes:
        """The same as bytes, with what is no UTF-8 in it."""
        text = self(place).encode()
        return text + RAW if self.hostile else text

    def quoted(self, place: str, most: int = 0) -> str:
        """The same as a YAML string whose escapes say what YAML forbids to be there itself."""
        text = self(place, most).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'


def acts(sent: bytes) -> set[str]:
    """Every kind of sequence in what was sent: `CSI ?h`, `OSC 52`, `ESC c`."""
    text = sent.decode("utf-8", "surrogateescape")
    kinds = {f"CSI {mark}{final}" for mark, _, final in CSI.findall(text)}
    rest = CSI.sub("", text)
    kinds |= {f"OSC {osc}" if not esc else f"ESC {esc}" for osc, esc in OTHER.findall(rest)}
    return kinds | ({"ESC"} if "\x1b" in OTHER.sub("", rest) else set())


def modes(sent: bytes) -> set[str]:
    """The private modes that were set or reset, and every attribute beyond colours."""
    return {
        f"{mark}{number}{final}"
        for mark, numbers, final in CSI.findall(sent.decode("utf-8", "replace"))
        if mark and final in "hl"
        for number in numbers.split(";")
    }


def unsafe(sent: bytes) -> list[str]:
    """Characters that no terminal should have been sent; lone bytes too."""
    text = OTHER.sub("", CSI.sub("", sent.decode("utf-8", "surrogateescape")))
    return sorted({hex(ord(char)) for char in text if _bad(char)})


def _bad(char: str) -> bool:
    kind = unicodedata.category(char)
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return char not in FINE
    return char in BIDI or unicodedata.bidirectional(char) in TURNS


# -- a place where every foreign text is hostile: files, answers, journals, cards, names -----------

SERVER = Path(__file__).with_name("hostile_server.py")


def stem(words: Words, place: str) -> str:
    return words(place, 60).replace("/", "-")


def playbooks(place: Place, words: Words) -> None:
    """One that loads with hostile text wherever text may be, and some that do not."""
    quoted = words.quoted
    book = f"""\
schema: omni.playbook/v1
name: a-good-one
title: {quoted("playbook title")}
objective: {quoted("objective")}
inputs:
  pick: {{type: choice, choices: [fine, {quoted("choice")}], default: fine,
         title: {quoted("input title")}}}
  free: {{type: string, default: {quoted("input default", 300)}, pattern: ".*"}}
phases:
  - title: {quoted("phase")}
    steps:
      - {{id: hi, note: {quoted("note")}, title: {quoted("step title")}, why: {quoted("why")}}}
      - {{id: argv, run: [echo, {quoted("argv")}, "${{{{ inputs.free }}}}"]}}
      - {{id: ask, approval: {{prompt: {quoted("prompt")}, confirm: {quoted("confirm word", 80)}}}}}
"""
    place.write("a-good-one.yaml", book)
    name = stem(words, "file of a broken playbook")
    broken = f"schema: omni.playbook/v1\nname: b\ntitle: {quoted('title of a broken one')}\n"
    place.write(f"b-{name}.yaml", f"{broken}{quoted('unknown key')}: 1\nphases: []\n")
    schema = b"schema: omni.playbook/v1\n"
    (place.root / "c-bytes.yaml").write_bytes(schema + b"title: " + words.data("YAML bytes"))
    (place.root / "d-long.yaml").write_bytes(schema + b"x" * 1_000_000)
    word = quoted("unknown service")
    steps = f"phases: [{{title: t, steps: [{{id: x, service: {{start: {word}}}}}]}}]\n"
    place.write("e-service.yaml", f"{broken.replace('name: b', 'name: e')}{steps}")
    read = f"lessons: [{quoted('lesson')}]\n{steps.replace(word, 'baseline')}"
    place.write("f-lesson.yaml", f"{broken.replace('name: b', 'name: f')}{read}")


def lesson(place: Place, words: Words) -> None:
    """A lesson of the operator's own, and the head of one that does not load."""
    quoted = words.quoted
    folder = place.root / "config/omni-console/lessons"
    folder.mkdir(parents=True)
    head = f"schema: omni.lesson/v1\nid: F-900\ntitle: {quoted('lesson title', 60)}\n"
    (folder / "F-900.yaml").write_text(f"""{head}\
date: 2026-01-19
severity: blocking
status: open
component: {quoted("component", 60)}
symptom: {quoted("symptom")}
cause: {quoted("lesson's cause")}
tried:
  - {{what: {quoted("what was tried")}, result: {quoted("result")}}}
resolution: {quoted("resolution")}
lesson: {quoted("what it teaches")}
evidence: [{quoted("evidence")}]
due: 2026-02-01
review: {quoted("review")}
""")
    (folder / "F-901.yaml").write_text(head.replace("900", "901") + f"{quoted('odd key', 60)}: 1\n")


def breach(run: RunDir, words: Words) -> None:
    """What a sentinel wrote when it stopped a load, an hour ago."""
    at = time.time() - 3600
    killed = {"name": words("killed"), "why": words("why it was killed"), "stuck": words("stuck"),
              "rungs": [words("rung of a kill")], "kind": "process", "written_s": 0.1}  # fmt: skip
    page = {
        "at": at, "wall": at, "mono": 1.0, "cause": "guard", "reason": words("breach"),
        "reasons": [words("reason of a breach")], "killed": [killed],
        "limit": {"metric": "host.ram_available", "below": 1e9, "source": words("source")},
        "refused": [words("refused")], "of": words("whose"), "window": {"fast": []},
    }  # fmt: skip
    run.guard.mkdir()
    run.breach.write_text(json.dumps(page))


def fleet(place: Place, words: Words) -> None:
    """A host that nobody can reach, and what it said when it was last heard of."""
    run = {name: words(f"host's {name}") for name in ("playbook", "state", "step", "said", "id")}
    base = {"word": words("host's baseline", 80), "name": words("host's model")}
    state = {"baseline": base, "run": {**run, "alive": words("host's life")}, "guard": {}}
    text = "schema: omni.fleet/v1\nhosts: {far: {ssh: no-host.invalid}}\n"
    place.env["OMNI_FLEET"] = file = str(place.write("fleet.yaml", text))
    (far,) = load_fleet(file).hosts
    known = place.root / "state/omni-console/fleet/hosts/far.json"
    known.parent.mkdir(parents=True)
    asked = [far.ssh, far.command]
    known.write_text(json.dumps({"at": time.time() - 60, "state": state, "asked": asked}))


def cards(place: Place, words: Words, nvml: Nvml) -> None:
    """Cards with hostile names; the console is told to read them."""
    script = place.root / "nvml-script"
    nvml.write(
        script,
        (RTX_PRO_6000.but(name=words("card", 60)), RTX_5090.but(name=words("card two", 60))),
        driver=words("driver", 60),
    )
    place.env |= nvml.env(script)


def journal(run: RunDir, words: Words) -> Journal:
    """A journal with hostile text in every string; its run stands at a failed step."""
    log = Journal(run.journal)
    at = time.time() - 60

    def add(kind: str, step: str = "", attempt: int = 0, **data: Any) -> None:
        log.append(at, kind, step, attempt, data)

    steps = [
        {
            "id": step, "title": words(f"title of {step}"), "phase": words(f"phase of {step}"),
            "kind": words(f"kind of {step}"), "takes_s": 4.0,
        }
        for step in ("one", "two", "three")
    ]  # fmt: skip
    add(
        "run.created", run_id=run.id, title=words("run title"), playbook=words("run's playbook"),
        owner=words("owner"), site=words("run's site"), steps=steps,
        inputs={words("input name"): words("input value"), "ctx": words("ctx")},
    )  # fmt: skip
    add("run.state", state="running")
    add("step.state", "one", 1, state="running", effects=[words("effect of one")])
    add("metrics", "one", metrics={words("metric"): {"value": 1.0, "unit": words("unit")}})
    row = {"metric": words("row's metric"), "verdict": "HOLD", "why": words("row")}
    add(
        "verdict", "one", verdict="HOLD", outcome=words("outcome"), criteria=[row],
        overridden=words("overridden"),
    )  # fmt: skip
    add("step.state", "one", 1, state="succeeded", duration_s=1.0, detail=words("detail of one"))
    add("step.state", "two", 1, state="running", effects=[words("effect")])
    add("step.say", "two", 1, text=words("said"))
    add("outage", down=True)
    add(
        "step.state", "two", 1, state="failed", cause=words("cause"), detail=words("detail"),
        duration_s=2.0, lines=[words("last line"), " ".join([words("next line")] * 400)],
    )  # fmt: skip
    add("run.state", state="paused", reason="step_failed", detail=words("pause detail"))
    return log


def logs(run: RunDir, words: Words) -> None:
    long = b"1 MB " + b"\xe6\xbc\xa2\x1b[31m" * 130_000 + b"\n"
    (run.path / "logs" / "cand.log").write_bytes(words.data("service log") + b"\n" + long)
    (run.path / "logs" / f"{stem(words, 'log file')}.log").write_bytes(b"x\n")
    run.attempt_log("two", 1).write_bytes(words.data("step output") + b"\r\n" + long)
    run.runner_log.write_bytes(words.data("runner log") + b"\n")
    report = f"# {words('report title')}\n\n| {words('cell')} | b |\n|---|---|\n| c | d |\n"
    run.report.write_bytes(report.encode() + words.data("report") + b"\n")
    line = {"trigger": "x", "rung": words("old rung"), "state": "note", "detail": words("old")}
    run.ladder.write_text(json.dumps(line) + "\n")


class Standing:
    """A run by hand, at a failed step; its runner and its warm ladder are sleepers."""

    def __init__(self, place: Place, words: Words) -> None:
        self.words = words
        self.run = directory(place, "20261120-140000-live-1a2b", words)
        self.sleepers = [subprocess.Popen(["sleep", "600"], env=place.env) for _ in range(2)]
        self.journal = journal(self.run, words)
        logs(self.run, words)
        breach(self.run, words)
        self.watchers = Control()
        self.server = Server(self.run.socket, self.watchers)
        self.watchers.set(
            state=RunState.PAUSED, reason="step_failed", step="two", attempt=1, evidence="e",
            mode=words("mode"),
        )  # fmt: skip
        os.mkfifo(self.run.rollback / FIFO)
        self.fifo = os.open(self.run.rollback / FIFO, os.O_RDONLY | os.O_NONBLOCK)
        for kind, child in zip(("runner", "ladder"), self.sleepers, strict=True):
            start = process.start_time(child.pid) or 0
            live.append(self.run.live, live.Live(kind, kind, child.pid, start))
        pid, start = self.sleepers[0].pid, process.start_time(self.sleepers[0].pid) or 0
        records.write(
            records.Pointer(
                self.run.id, str(self.run.path), words("pointer's user"), os.getuid(), pid, start,
                started_at=time.time(),
            )
        )  # fmt: skip

    def ask(self) -> None:
        data = {"state": "waiting_approval", "detail": self.words("question"), "reason": ""}
        self.journal.append(time.time(), "step.state", "three", 1, {"state": "running"})
        self.journal.append(time.time(), "run.state", "", 0, data)
        confirm = self.words("confirm")
        self.watchers.set(state=RunState.WAITING_APPROVAL, reason="", step="three", confirm=confirm)

    def held(self) -> None:
        data = {"state": "paused", "reason": self.words("reason"), "detail": self.words("held")}
        self.journal.append(time.time(), "run.state", "", 0, data)
        self.watchers.set(state=RunState.PAUSED, reason=self.words("reason"))

    def pressed(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self.fifo, 1))
        return False

    def roll_back(self) -> None:
        """What a ladder would say, with hostile text in it."""
        words = self.words
        lines: list[dict[str, Any]] = [
            {"rung": words("rung"), "state": words("rung's state"), "detail": words("rung detail")},
            {
                "rung": "done", "state": "failed", "detail": words("end"), "serving": False,
                "manual": [words("by hand")], "restore_s": 1.0,
            },
        ]  # fmt: skip
        with self.run.ladder.open("a") as file:
            for line in lines:
                file.write(json.dumps({"trigger": "warm-1", "t": 0.1, "at": 1.0, **line}) + "\n")

    def close(self) -> None:
        self.server.close()
        self.journal.close()
        os.close(self.fifo)
        for child in self.sleepers:
            child.kill()
            child.wait()


def directory(place: Place, name: str, words: Words) -> RunDir:
    run = RunDir(place.root / "state/omni-console/runs" / name)
    for part in ("rollback", "logs", "attempts"):
        (run.path / part).mkdir(parents=True)
    meta = RunMeta(run.id, words("meta playbook"), "/x", "", "/x", "/x", owner=words("meta owner"))
    run.write_meta(meta)
    return run


@contextlib.contextmanager
def hostile_place(root: Path, words: Words, nvml: Nvml) -> Iterator[tuple[Place, Standing]]:
    """A place whose files, servers, cards and runs say what `words` says."""
    place = Place.begin(root)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_STATE_HOME", "OMNI_HOST_DIR"):
            patch.setenv(name, place.env[name])
        try:
            text = place.root / "words"
            text.write_bytes(words.data("HTTP answer"))
            argv = [sys.executable, "-S", str(SERVER), str(place.base_port), str(text)]
            place.children.append(subprocess.Popen(argv, env=place.env, text=True))
            home = place.root / f"home-{stem(words, 'home')}"
            home.mkdir()
            user = words("user", 60)
            place.env |= {"HOME": str(home), "USER": user, "LOGNAME": user, "SUDO_USER": user}
            playbooks(place, words)
            fleet(place, words)
            cards(place, words, nvml)
            lesson(place, words)
            twin = directory(place, "20261118-140000-twin-2b3c", words)
            journal(twin, words).close()
            old = directory(place, f"20261119-{stem(words, 'old run')}-ffff", words)
            logs(old, words)
            (old.path / "journal.db").write_bytes(words.data("no journal at all"))
            standing = Standing(place, words)
            try:
                yield place, standing
            finally:
                standing.close()
        finally:
            place.close()
