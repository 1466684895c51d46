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
                "--yes needs the ids of what is removed", "nothing is removed without being named",
                "omni-console clean lists ids; omni-console clean --yes ID ID …",
            )  # fmt: skip
        if args.all is not None:
            raise UsageError(
                "--all goes without --yes", "what it lists is not the console's to remove",
                "omni-console clean --all names the command for each",
            )  # fmt: skip
        return _remove(site, list(args.yes), args.json)
    inventory = survey(site)
    others, notes = ([], []) if args.all is None else foreign(site, inventory, args.all)
    if args.json:
        more = {} if args.all is None else {"foreign": _others_json(others, notes)}
        print(redact.dumped({**_as_json(inventory), **more}))
        return int(Exit.OK)
    if args.all is not None:
        print("\n".join([*_others(others, notes), "", "Made by the console:", ""]))
    for line in _lines(inventory):
        print(line)
    if not inventory.removable or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return int(Exit.OK)
    print("ids to remove, with spaces between (Enter: none): ", end="", flush=True)
    ids = sys.stdin.readline().split()
    return _remove(site, ids, False) if ids else int(Exit.OK)


def _remove(site: Site, ids: list[str], as_json: bool) -> int:
    done: list[Removal] = []
    for current_removal in remove(site, ids):
        done.append(current_removal)
        if not as_json:
            print(_removed(current_removal), flush=True)
    if as_json:
        rows = [
            {**_item(removal.item), "freed": removal.freed, "error": removal.error}
            for removal in done
        ]
        print(
            redact.dumped({"removed": rows, "freed": sum(removal.freed or 0 for removal in done)})
        )
    return int(Exit.FAILED if any(removal.error for removal in done) else Exit.OK)


def _removed(removal: Removal) -> str:
    if removal.error:
        return f"NOT REMOVED  {removal.item.id}  {clean_text(removal.error)}"
    freed = format_bytes(removal.freed) if removal.freed is not None else "unknown"
    return f"removed  {removal.item.id}  {clean_text(removal.item.what)}  {freed} free"


def _lines(inventory: Survey) -> list[str]:
    out: list[str] = []
    for kind in KINDS:
        items = [leftover for leftover in inventory.items if leftover.kind == kind]
        if items:
            out += [f"{HEAD[kind]}  {_bytes(inventory, items)}"]
            out += [line for leftover in items for line in _row(leftover)]
            out += [""]
    out += [f"note: {clean_text(note)}" for note in inventory.notes]
    free = inventory.removable
    if free:
        out.append(
            f"{len(free)} of {len(inventory.items)} may go, {_bytes(inventory, free)}; nothing was "
            "removed. omni-console clean --yes ID … removes what is named"
        )
    else:
        out.append("nothing that may be removed")
    return out


def _others(others: Sequence[Foreign], notes: Sequence[str]) -> list[str]:
    out = ["Not made by the console, which never removes it:", ""]
    for kind in FOREIGN_KINDS:
        items = [other for other in others if other.kind == kind]
        if items:
            total = sum(other.bytes or 0 for other in items)
            out += [f"{FOREIGN_HEAD[kind]}  {format_bytes(total)}"]
            out += [line for other in items for line in _other(other)]
            out += [""]
    out += [] if others else ["nothing was found", ""]
    return [*out[:-1], *(f"note: {clean_text(note)}" for note in notes)]


def _other(other: Foreign) -> list[str]:
    size = format_bytes(other.bytes) if other.bytes is not None else "?"
    rows = [f"  {size:>10}  {_day(other.since):<10}  {clean_text(other.what)}"]
    if other.kind == "checkpoint":
        rows.append(f"          {clean_text(other.where)}")
    rows += [f"          used by: {clean_text(other.used)}"] if other.used else []
    return [*rows, *([f"          $ {clean_text(other.how)}"] if other.how else [])]


def _others_json(others: Sequence[Foreign], notes: Sequence[str]) -> dict[str, Any]:
    rows = [
        {
            **asdict(other),
            "since": other.since or None,
            "used": other.used or None,
            "how": other.how or None,
        }
        for other in others
    ]
    return {"items": rows, "notes": list(notes), "bytes": sum(other.bytes or 0 for other in others)}


def _day(since: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(since)) if since else "–"


def _bytes(inventory: Survey, items: list[Leftover]) -> str:
    free, exact = inventory.freed(items)
    return format_bytes(free) if exact else f"at least {format_bytes(free)}"


def _row(leftover: Leftover) -> list[str]:
    size = format_bytes(leftover.bytes) if leftover.bytes is not None else "?"
    sign = "stays" if leftover.stays else "     "
    rows = [
        f"  {sign} {leftover.id:<16} {size:>10}  {_day(leftover.since)}  "
        f"{clean_text(leftover.what)}"
    ]
    if leftover.kind in ("download", "run"):
        rows.append(f"          {clean_text(leftover.where)}")
    if leftover.stays:
        rows.append(f"          stays: {clean_text(leftover.stays)}")
    return rows


def _as_json(inventory: Survey) -> dict[str, Any]:
    free, exact = inventory.freed(inventory.removable)
    return {
        "items": [_item(leftover) for leftover in inventory.items],
        "notes": list(inventory.notes),
        "bytes": inventory.freed(list(inventory.items))[0],
        "removable_bytes": free,
        "removable_is_exact": exact,
    }


def _item(leftover: Leftover) -> dict[str, Any]:
    return {
        "id": leftover.id, "kind": leftover.kind, "what": leftover.what, "where": leftover.where,
        "bytes": leftover.bytes, "since": leftover.since or None, "run": leftover.run or None,
        "stays": leftover.stays or None,
    }  # fmt: skip
