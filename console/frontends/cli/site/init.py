"""`init`: finds what serves on this machine, writes the site file for it, and proves it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import textwrap
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from console.common import paths, redact
from console.common.errors import ConsoleError, Exit, InvalidFile, UsageError
from console.common.files import write_atomically
from console.common.text import clean, columns, folded, one_line

if TYPE_CHECKING:
    from console.config.site.draft import Draft
    from console.config.site.site import Site
    from console.host.ports import Listener
    from console.runtime.discovery.servers import Search, Server

RUNS, TOKENS = 3, 128
RATE_FORM = "`measure`, `none`, or tok/s like 10.9"
CARDS_S = 3.0
ASKED_TIMES, QUESTION_S = 2, 60.0
SCHEMA = "site.schema.json"
GARBLED = (
    "it answers garbage: correct how it is started (model file, build, settings), start it again, "
    "then omni-console init --force"
)
KNOWN = (
    "Known are llama-server, vLLM, SGLang, ollama, and any program that listens and names a .gguf "
    "or .safetensors file."
)
TUNNEL = "it leads to another machine: init on that one finds the server"
BY_HAND = (
    "a server of another kind is described in a site file by hand (docs/reference/site.md), and "
    "omni-console adopt takes it over"
)
NOTHING = (
    "Next: start your server as you always do, then omni-console init again; or omni-console demo "
    "shows a whole run without one."
)


def init(args: Namespace) -> int:
    """0 when the baseline of the new site file has answered a completion, 5 when it has not or
    nothing was found; 2 when nothing could be written."""
    from console.config.site.draft import missing_values
    from console.runtime.discovery.servers import search

    path = _output(args.output or args.site or "")
    if not args.list:
        _may_write(path, args.force)
        _rate(args.reference or "none")
    say = _Voice(args.json)
    discovery = search()
    say.show_servers(discovery)
    if args.list:
        say.end({"servers": [_as_json(entry) for entry in discovery.servers]})
        return int(Exit.OK)
    if not discovery.servers:
        say.end({"servers": [], "written": ""})
        return int(Exit.FAILED)
    server = _picked(discovery, args)
    reference = _reference(args, path)
    rate = _known_rate(reference, server, say)
    knows = not rate.garbage and _knows(server, say)
    draft = _drafted(server, discovery, path, rate, _name(path, say), knows=knows)
    before, beside = _replaced(path), _cut_overs(server.url, path)
    for words in beside:
        say.line("note", words)
    site = _write(draft, path, args.force)
    say.line("wrote", f"{path} (mode 0600), site {site.name}")
    if draft.left_out:
        say.line("left out", f"{missing_values(draft.left_out)} in it: init never writes a secret")
    adopted, notes = _adopt(site, server, draft, say)
    if before is not None and (words := _earlier(before, site)):
        say.line("note", words)
        notes = [words, *notes]
    notes = [*beside, *notes]
    proof = _prove(site, rate.garbage, say)
    if not adopted and proof["ok"]:  # no run starts before it is taken over
        proof["hint"] = "mend why it was not taken over, then omni-console adopt"
    say.next(args, path, proof)
    say.end({
        "servers": [_as_json(entry) for entry in discovery.servers], "written": str(path),
        "baseline": _as_json(server), "left_out": list(draft.left_out), "tok_s": rate.tok_s,
        "adopted": adopted, "notes": notes, "proof": proof,
    })  # fmt: skip
    return int(Exit.OK if proof["ok"] else Exit.FAILED)


def _replaced(path: Path) -> Site | None:
    """The site whose file is about to be replaced; None if there is none that can be read."""
    from console.config.site.site import load_site

    try:
        return load_site(path, lacking=True) if path.exists() else None
    except ConsoleError:
        return None


def _cut_overs(url: str, path: Path) -> list[str]:
    from console.runner.prepare import adopt as adoption

    return adoption.cut_overs_beside(url, str(path))


def _earlier(before: Site, now: Site) -> str:
    from console.runner.prepare import adopt as adoption

    return adoption.earlier(before, now)


class _Voice:
    """What is told on the way: on stdout, or with --json on stderr, where one object follows."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.out = sys.stderr if as_json else sys.stdout

    def line(self, word: str, text: str = "") -> None:
        line = f"{word:<11} {clean(text, 600)}".rstrip() if text else word
        print("\n".join(folded(line, columns(self.out))), file=self.out)

    def end(self, value: dict[str, Any]) -> None:
        if self.as_json:
            print(redact.dumped(value))

    def show_servers(self, search: Search) -> None:
        """The numbered list, and what was looked at."""
        print("\n".join(listing(search)), file=self.out, flush=True)

    def next(self, args: Namespace, path: Path, proof: dict[str, Any]) -> None:
        named = path != paths.default_site() and str(path) != os.environ.get("OMNI_SITE")
        site = f" --site {path}" if named else ""
        if proof["ok"] and not proof["hint"]:
            self.line("next", f"omni-console{site} run baseline-verify measures and judges it in "
                      f"about three minutes; omni-console{site} opens the console; "
                      f"omni-console doctor{site} says what the machine lacks")  # fmt: skip
        else:
            self.line("next", f"{proof['hint']}; then omni-console doctor{site}")


def listing(search: Search) -> list[str]:
    """What was found, each server with a number by which it can be picked, in clean lines."""
    looked = f"Looked at {', '.join(search.looked)}."
    if not search.servers:
        return [
            "No model server was found on this machine.",
            *_wrapped(looked, *search.trouble, KNOWN, NOTHING),
        ]
    rows = ["Model servers on this machine:", ""]
    for number, server in enumerate(search.servers, 1):
        model = clean(server.model, 60) or "model unknown"
        mark = "-" if server.unfit else str(number)
        rows.append(
            f"{mark:>3}  {server.engine.name:<14} {clean(server.url, 80):<28} "
            f"{_state(server):<12} {model}"
        )
        rows.append(f"     {server.words}")
        if server.unfit:
            hint = f"; {server.hint}" if server.hint else ""
            rows += _wrapped(f"cannot be the baseline: {clean(server.unfit + hint, 400)}", indent=5)
    return [*rows, "", *_wrapped(looked, *search.trouble, indent=0), ""]


def _wrapped(*texts: str, indent: int = 2) -> list[str]:
    """Each text in lines that fit the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    lead = " " * indent
    return [
        line for text in texts
        for line in textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=lead,
                                  break_on_hyphens=False, break_long_words=False)
    ]  # fmt: skip


def _state(server: Server) -> str:
    from console.runtime.probe import Health

    if server.wants_key:
        return "refuses: it wants a key"
    words = {Health.REFUSED: "no answer", Health.UNHEALTHY: "unhealthy"}
    return words.get(server.state, str(server.state))


def _output(given: str) -> Path:
    named = given or os.environ.get("OMNI_SITE") or str(paths.default_site())
    return Path(os.path.realpath(os.path.expanduser(named)))


def _may_write(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(
            f"nothing was written: {one_line(str(path))} exists", "; ".join(_cut_overs("", path)),
            "--force replaces it, --output FILE writes another, --list only shows what serves; "
            "omni-console adopt takes over a server that the file describes already",
        )  # fmt: skip


def _picked(search: Search, args: Namespace) -> Server:
    """The server that is the baseline, as `--pick` says or the operator answers."""
    fit = [server for server in search.servers if not server.unfit]
    if args.pick:
        return _named(search, args.pick)
    if not fit:
        first = search.servers[0]
        raise UsageError(
            "nothing was written: none of them can be the baseline", one_line(first.unfit, 400),
            first.hint,
        )  # fmt: skip
    if args.yes or not _can_ask(args):
        if len(fit) > 1 or not args.yes:
            raise UsageError(
                "nothing was written: it has to be said which one is the baseline",
                "several serve" if len(fit) > 1 else "this is not a terminal, so nothing is asked",
                "omni-console init --pick N --yes, with a number, a URL, a pid or a name",
            )
        return fit[0]
    number = search.servers.index(fit[0]) + 1
    answer = _ask(f"Which one is the baseline? [{number}] ").strip()
    return _named(search, answer or str(number))


def _named(search: Search, word: str) -> Server:
    """The server with this number or name. Raises UsageError if it is none, or cannot be used."""
    servers = search.servers
    matches = [server for server in servers if word.rstrip("/") in server.names]
    if word.isascii() and word.isdigit() and 0 < int(word) <= len(servers):
        matches = [servers[int(word) - 1]]
    if len(matches) != 1:
        why = "several have this name" if matches else "none of those that were found"
        hint = "a number of the list, a URL, a pid, a container or a unit"
        if not matches and (who := _listens(word)):
            why = (
                f"pid {who.pid}, {who.words}, listens there, and is no model server of this machine"
            )
            hint = TUNNEL if _is_tunnel(who) else BY_HAND
        raise UsageError(f"nothing was written: {one_line(word, 60)}", why, hint)
    if matches[0].unfit:
        raise UsageError(
            f"nothing was written: {matches[0].words} cannot be the baseline",
            one_line(matches[0].unfit, 400), matches[0].hint,
        )  # fmt: skip
    return matches[0]


def _is_tunnel(who: Listener) -> bool:
    """Whether it passes on to another machine what it is asked."""
    program = who.words.split(" ")[0].rpartition("/")[2].rstrip(":")
    return program in ("ssh", "autossh", "plink", "dbclient")


def _listens(word: str) -> Listener | None:
    """Who listens at the URL or port of this machine that was picked; None for nobody who is
    seen."""
    from console.host.ports import listener

    try:
        return listener(word if "://" in word else f"http://127.0.0.1:{int(word.lstrip(':'))}")
    except ValueError:
        return None


def _can_ask(args: Namespace) -> bool:
    return sys.stdin.isatty() and not args.json


def _ask(question: str) -> str:
    try:
        return input(question)
    except EOFError:
        raise UsageError(
            "nothing was written", "no answer was given", "--yes asks nothing"
        ) from None


def _rate(word: str) -> float | None:
    """A rate in tok/s, None for `none` and `measure`. Raises UsageError."""
    if word in ("none", "measure"):
        return None
    try:
        rate = float(word.removesuffix("tok/s").strip())
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e6:
        raise UsageError(f"--reference {one_line(word, 40)}", f"expected {RATE_FORM}")
    return rate


def _reference(args: Namespace, path: Path) -> str:
    """Where the reference rate comes from; the question confirms the writing, too."""
    if not args.yes and not _can_ask(args):
        raise UsageError("nothing was written: this is not a terminal", "", "--yes confirms")
    if args.yes or args.reference:
        return args.reference or "measure"
    line = f"{path} is written next. Its reference is the speed that the baseline is known to have."
    print("\n".join(folded(line, columns(sys.stdout))))
    answer = _ask(f"Enter measures it ({RUNS} answers), a number is tok/s, `none`, `q` writes "
                  "nothing: ").strip()  # fmt: skip
    if answer.lower() in ("q", "quit", "n", "no"):
        raise UsageError("nothing was written", "as you said")
    _rate(answer or "measure")
    return answer or "measure"


class _Rate(NamedTuple):
    """The reference rate in tok/s, and where it comes from in words. `garbage`: why most answers of
    the measurement are none."""

    tok_s: float | None = None
    source: str = ""
    garbage: str = ""


def _known_rate(word: str, server: Server, say: _Voice) -> _Rate:
    if word != "measure":
        return _Rate(_rate(word), "as told")
    from console.bench.benchmark import Benchmark, Protocol
    from console.bench.interference import Engine, Surroundings
    from console.runtime.probe import Health

    if server.state is not Health.SERVING:
        say.line("measured", "nothing: it does not serve now; the file has no reference")
        return _Rate()
    # as a benchmark measures, which it will be compared with: a streamed answer costs a fast server
    # more than a whole one
    protocol = Protocol(max_tokens=TOKENS, runs=RUNS, max_runs=RUNS)
    model = server.model if server.engine.names_model else ""
    # a reference that was measured beside requests of others would never call a baseline degraded
    around = Surroundings(Engine("", url=server.url))
    result = Benchmark(
        server.url, protocol, model, surroundings=around,
        held=lambda words: say.line("measured", f"nothing yet, it {words}"),
    ).run()  # fmt: skip
    if result.garbled is not None and result.garbled.mostly:
        say.line("measured", f"nothing: {result.garbled}; the file has no reference")
        return _Rate(garbage=str(result.garbled))
    figure = result.metrics.get("decode_tok_s")
    if figure is None or figure.median is None:
        why = (
            next((str(void.get("reason") or "") for void in result.voids), "") or "no answer counts"
        )
        say.line("measured", f"nothing: {one_line(why, 300)}; the file has no reference")
        return _Rate()
    rate = figure.median
    say.line("measured", f"{rate:.4g} tok/s, median of {figure.n} answers of {TOKENS} tokens")
    flags = [str(result.garbled)] if result.garbled is not None else []
    for words in (*flags, *around.users.flags()):
        say.line("measured", words)
    return _Rate(rate, f"measured on {time.strftime('%Y-%m-%d')}")


def _knows(server: Server, say: _Voice) -> bool:
    """Whether the server answers a question that nearly every model knows, each time that it is
    asked: then the proof asks that."""
    from console.config.site.draft import ANSWER, ANSWER_TOKENS, QUESTION
    from console.runtime.answers.completion import prove
    from console.runtime.probe import Health

    if server.state is not Health.SERVING:
        return False
    model = server.model if server.engine.names_model else ""
    for _ in range(ASKED_TIMES):
        done = prove(
            server.url, model=model, prompt=QUESTION, max_tokens=ANSWER_TOKENS, expect=ANSWER,
            timeout_s=QUESTION_S,
        )  # fmt: skip
        if not done.ok or ANSWER not in done.answer:
            how = f"is not answered with {ANSWER}" if done.ok else "got no answer to read"
            words = f"“{QUESTION}” {how}: a proof looks at the form alone"
            say.line("note", f"{words}; `completion.expect` in the file says what to look for")
            return False
    say.line("asked", f"“{QUESTION}” and got {ANSWER}: the proof asks that from now on")
    return True


def _drafted(
    server: Server, search: Search, path: Path, rate: _Rate, name: str, *, knows: bool
) -> Draft:
    from console.config.site.draft import DraftDetails, draft
    from console.host.gpu import inventory
    from console.runtime.engine_address import DEFAULT_HOST, address

    boxes = [other.box for other in search.servers if other.box is not None and other is not server]
    # the file names the engine that was asked: another context may be chosen later
    host = address().host if server.box is not None else ""
    host = "" if host == DEFAULT_HOST and not address().source else host
    details = DraftDetails(
        name, _schema(path), time.strftime("%Y-%m-%d"), rate.tok_s,
        rate.source, host if host.startswith("unix:///") else "", inventory.ask(CARDS_S).cards,
        [box.name for box in boxes if not box.of_run], knows,
    )  # fmt: skip
    return draft(server, details)


def _name(path: Path, say: _Voice) -> str:
    """The host's name; another one where another site has that: two sites of one name would share
    their records."""
    from console.config.site.draft import site_name
    from console.runner.prepare import namesakes

    wanted = site_name(socket.gethostname())
    name = namesakes.free_name(wanted, site_name(path.stem), path)
    if name != wanted:
        say.line("named", f"{name}, as another site on this machine has the name {wanted}")
    return name


def _schema(path: Path) -> str:
    """Write the schema beside the user's site files; return how the new file names it."""
    from console.config.site.site import SiteModel
    from console.config.validation import json_schema

    schema = paths.config_dir() / SCHEMA
    paths.make(schema.parent)
    write_atomically(
        schema, json.dumps(json_schema(SiteModel, "omni-console site"), indent=1) + "\n"
    )
    beside = os.path.realpath(schema.parent) == str(path.parent)
    return SCHEMA if beside else str(schema)


def _write(draft: Draft, path: Path, force: bool) -> Site:
    """Write the file and load it. Raises UsageError where it cannot be written."""
    from console.config.site.site import load_site

    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        paths.make(path.parent)
        write_atomically(beside, draft.text, 0o600)
        load_site(beside, lacking=True)
        _place(beside, path, force)
        return load_site(path, lacking=True)
    except InvalidFile as error:
        raise ConsoleError("no valid site file can be made of it", error.detail) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"nothing was written: {one_line(str(path))}", why) from error
    finally:
        beside.unlink(missing_ok=True)


def _place(beside: Path, path: Path, force: bool) -> None:
    """Give a file its name: without `force` never over one that has appeared meanwhile. Raises
    OSError."""
    if not force:
        try:
            os.link(beside, path)
            return
        except FileExistsError:
            raise
        except OSError:
            pass  # a file system without hard links
    os.replace(beside, path)


def _adopt(site: Site, server: Server, draft: Draft, say: _Voice) -> tuple[bool, list[str]]:
    """Take the process over, so that runs and rollbacks work on it from the start. Whether the
    console knows the baseline now, and what the operator has to know about it."""
    if server.kind != "process" or server.running is None:
        return True, []
    from console.config.site.draft import missing_values, where_to_write
    from console.runner.prepare import adopt as adoption

    if draft.left_out:
        why = f"{missing_values(draft.left_out)}; {where_to_write(draft.left_out, site.path)}"
        say.line("not taken", f"over: {why}")
        return False, [why]
    try:
        notes = adoption.adopt(site, server.running)
    except ConsoleError as error:
        say.line("not taken", f"over: {error.detail or error.title}")
        return False, []
    say.line("taken over", f"pid {server.running.pid}: it goes on serving; a run can stop it, and "
             "a rollback brings it back")  # fmt: skip
    for note in notes:
        say.line("note", note)
    return True, notes


def _prove(site: Site, garbage: str, say: _Voice) -> dict[str, Any]:
    """One completion of the new baseline: whether it came, and what to do if it did not. Where the
    longer answers of the measurement are garbage, a short one that is not proves nothing."""
    from console.runner.prepare import adopt as adoption

    if garbage:
        adoption.remember_garbage(site, garbage)
        say.line("proof", f"FAILED: {garbage}")
        return {"ok": False, "detail": clean(garbage), "hint": GARBLED}
    try:
        done = adoption.prove(site)
    except ConsoleError as error:
        hint = _remedy(error.detail)
        say.line("proof", f"FAILED: {error.detail or error.title}")
        return {"ok": False, "detail": clean(error.detail or error.title), "hint": hint}
    say.line("proof", f"ok: {done.detail}")
    return {"ok": True, "detail": done.detail, "hint": ""}


def _remedy(detail: str) -> str:
    from console.recovery.rollback.observe import ELSE
    from console.runtime.discovery.adoption import NOT_OURS
    from console.runtime.probe import remedy

    if detail.startswith(ELSE):
        return NOT_OURS
    if "garbled" in detail:
        return GARBLED
    if known := remedy(detail):
        return known
    if "loading" in detail.lower():
        return "wait until it has loaded"
    return "see what the server's own log says"


def _as_json(server: Server) -> dict[str, Any]:
    running, box = server.running, server.box
    return {
        "kind": server.kind,
        "engine": server.engine.name,
        "url": server.url,
        "state": "refusing" if server.wants_key else str(server.state),
        "model": clean(server.model),
        "pid": running.pid if running and not box else None,
        "container": clean(box.name) if box else "",
        "unit": server.unit.name if server.unit else "",
        "unfit": server.unfit,
        "hint": server.hint,
    }
