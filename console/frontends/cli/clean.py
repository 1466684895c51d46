"""`clean`: lists what old trials left, with paths and bytes; removes only what a person names."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from console.common import redact
from console.common.errors import Exit, UsageError
from console.common.text import clean as clean_text
from console.common.units import format_bytes
from console.config.locate import site as site_of
from console.config.site.site import Site
from console.runner.cleanup.clean import Removal, remove, survey
from console.runner.cleanup.foreign import KINDS as FOREIGN_KINDS
from console.runner.cleanup.foreign import Foreign, foreign
from console.runner.cleanup.leftover import KINDS, Leftover, Survey

HEAD = {"container": "Containers", "image": "Images that build steps made",
        "download": "Downloads", "run": "Runs"}  # fmt: skip
FOREIGN_HEAD = {"image": "Images", "build cache": "Build cache",
                "container": "Stopped containers", "checkpoint": "Checkpoints"}  # fmt: skip


def clean(args: Namespace) -> int:
    """List; with --yes ID… or ids typed at a terminal, remove those. Exit 5 when one did not go."""
    site = site_of(args.site)
    if args.yes is not None:
        if not args.yes:
            raise UsageError(
                "--yes of what?", "nothing is removed without being named",
                "omni-console clean lists ids; omni-console clean --yes ID ID …",
            )  # fmt: skip
        if args.all is not None:
            raise UsageError(
                "--all goes without --yes", "what it lists is not the console's to remove",
                "omni-console clean --all names the command for each",
            )  # fmt: skip
        return _remove(site, list(args.yes), args.json)
    found = survey(site)
    others, notes = ([], []) if args.all is None else foreign(site, found, args.all)
    if args.json:
        more = {} if args.all is None else {"foreign": _others_json(others, notes)}
        print(redact.dumped({**_as_json(found), **more}))
        return int(Exit.OK)
    if args.all is not None:
        print("\n".join([*_others(others, notes), "", "Made by the console:", ""]))
    for line in _lines(found):
        print(line)
    if not found.removable or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return int(Exit.OK)
    print("ids to remove, with spaces between (Enter: none): ", end="", flush=True)
    ids = sys.stdin.readline().split()
    return _remove(site, ids, False) if ids else int(Exit.OK)


def _remove(site: Site, ids: list[str], as_json: bool) -> int:
    done: list[Removal] = []
    for one in remove(site, ids):
        done.append(one)
        if not as_json:
            print(_removed(one), flush=True)
    if as_json:
        rows = [{**_item(one.item), "freed": one.freed, "error": one.error} for one in done]
        print(redact.dumped({"removed": rows, "freed": sum(one.freed or 0 for one in done)}))
    return int(Exit.FAILED if any(one.error for one in done) else Exit.OK)


def _removed(one: Removal) -> str:
    if one.error:
        return f"NOT REMOVED  {one.item.id}  {clean_text(one.error)}"
    freed = format_bytes(one.freed) if one.freed is not None else "unknown"
    return f"removed  {one.item.id}  {clean_text(one.item.what)}  {freed} free"


def _lines(found: Survey) -> list[str]:
    out: list[str] = []
    for kind in KINDS:
        items = [one for one in found.items if one.kind == kind]
        if items:
            out += [f"{HEAD[kind]}  {_bytes(found, items)}"]
            out += [line for one in items for line in _row(one)]
            out += [""]
    out += [f"note: {clean_text(note)}" for note in found.notes]
    free = found.removable
    if free:
        out.append(
            f"{len(free)} of {len(found.items)} may go, {_bytes(found, free)}; nothing was "
            "removed. omni-console clean --yes ID … removes what is named"
        )
    else:
        out.append("nothing that may be removed")
    return out


def _others(others: Sequence[Foreign], notes: Sequence[str]) -> list[str]:
    out = ["Not made by the console, which never removes it:", ""]
    for kind in FOREIGN_KINDS:
        items = [one for one in others if one.kind == kind]
        if items:
            total = sum(one.bytes or 0 for one in items)
            out += [f"{FOREIGN_HEAD[kind]}  {format_bytes(total)}"]
            out += [line for one in items for line in _other(one)]
            out += [""]
    out += [] if others else ["nothing was found", ""]
    return [*out[:-1], *(f"note: {clean_text(note)}" for note in notes)]


def _other(one: Foreign) -> list[str]:
    size = format_bytes(one.bytes) if one.bytes is not None else "?"
    rows = [f"  {size:>10}  {_day(one.since):<10}  {clean_text(one.what)}"]
    if one.kind == "checkpoint":
        rows.append(f"          {clean_text(one.where)}")
    rows += [f"          used by: {clean_text(one.used)}"] if one.used else []
    return [*rows, *([f"          $ {clean_text(one.how)}"] if one.how else [])]


def _others_json(others: Sequence[Foreign], notes: Sequence[str]) -> dict[str, Any]:
    rows = [
        {
            **asdict(one),
            "since": one.since or None,
            "used": one.used or None,
            "how": one.how or None,
        }
        for one in others
    ]
    return {"items": rows, "notes": list(notes), "bytes": sum(one.bytes or 0 for one in others)}


def _day(since: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(since)) if since else "–"


def _bytes(found: Survey, items: list[Leftover]) -> str:
    free, exact = found.freed(items)
    return format_bytes(free) if exact else f"at least {format_bytes(free)}"


def _row(one: Leftover) -> list[str]:
    size = format_bytes(one.bytes) if one.bytes is not None else "?"
    sign = "stays" if one.stays else "     "
    rows = [f"  {sign} {one.id:<16} {size:>10}  {_day(one.since)}  {clean_text(one.what)}"]
    if one.kind in ("download", "run"):
        rows.append(f"          {clean_text(one.where)}")
    if one.stays:
        rows.append(f"          stays: {clean_text(one.stays)}")
    return rows


def _as_json(found: Survey) -> dict[str, Any]:
    free, exact = found.freed(found.removable)
    return {
        "items": [_item(one) for one in found.items],
        "notes": list(found.notes),
        "bytes": found.freed(list(found.items))[0],
        "removable_bytes": free,
        "removable_is_exact": exact,
    }


def _item(one: Leftover) -> dict[str, Any]:
    return {
        "id": one.id, "kind": one.kind, "what": one.what, "where": one.where,
        "bytes": one.bytes, "since": one.since or None, "run": one.run or None,
        "stays": one.stays or None,
    }  # fmt: skip
