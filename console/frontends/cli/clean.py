"""`clean`: lists what old trials left, with paths and bytes; removes only what a person names."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from typing import Any

from console.common.errors import Exit, UsageError
from console.common.text import clean as clean_text
from console.common.units import format_bytes
from console.config.locate import site as site_of
from console.config.site.site import Site
from console.runner.cleanup.clean import Removal, remove, survey
from console.runner.cleanup.leftover import KINDS, Leftover, Survey

HEAD = {"container": "Containers", "image": "Images that build steps made",
        "download": "Downloads", "run": "Runs"}  # fmt: skip


def clean(args: Namespace) -> int:
    """List; with --yes ID… or ids typed at a terminal, remove those. Exit 5 when one did not go."""
    site = site_of(args.site)
    if args.yes is not None:
        if not args.yes:
            raise UsageError(
                "--yes of what?", "nothing is removed without being named",
                "omni-console clean lists ids; omni-console clean --yes ID ID …",
            )  # fmt: skip
        return _remove(site, list(args.yes), args.json)
    found = survey(site)
    if args.json:
        print(json.dumps(_as_json(found)))
        return int(Exit.OK)
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
        print(json.dumps({"removed": rows, "freed": sum(one.freed or 0 for one in done)}))
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


def _bytes(found: Survey, items: list[Leftover]) -> str:
    free, exact = found.freed(items)
    return format_bytes(free) if exact else f"at least {format_bytes(free)}"


def _row(one: Leftover) -> list[str]:
    size = format_bytes(one.bytes) if one.bytes is not None else "?"
    day = time.strftime("%Y-%m-%d", time.localtime(one.since)) if one.since else "–"
    sign = "stays" if one.stays else "     "
    rows = [f"  {sign} {one.id:<16} {size:>10}  {day}  {clean_text(one.what)}"]
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
