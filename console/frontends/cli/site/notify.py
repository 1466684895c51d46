"""`notify`: the channels of the site, what waits for them, and a test of each; and the sender.

`notify deliver` (internal) is the detached process that delivers what is queued.
"""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from console.common import redact
from console.common.clock import SystemClock
from console.common.errors import Exit, UsageError
from console.common.text import clean, one_line
from console.common.units import format_duration, plural
from console.config.locate import site as site_of
from console.config.site.notify import USUAL, NotifyModel
from console.config.site.site import Site

if TYPE_CHECKING:
    from console.notify.outbox import ChannelState

DOCS = "docs/how-to/notify.md describes `notify:` in the site file"


def notify(args: Namespace) -> int:
    """List the channels of the site, or test them. Exit 0; 1 if a test failed; 2 for bad usage."""
    if args.part == "deliver":
        from console.notify.sender import main

        return main()
    if args.part:
        raise UsageError(
            f"notify takes no '{one_line(args.part, 40)}'", "", "omni-console notify --help"
        )
    if args.channel is not None and not args.test:
        raise UsageError("--channel needs --test", "", "omni-console notify --test --channel 1")
    site = site_of(args.site)
    every = list(enumerate(site.model.notify, 1))
    if not args.test:
        return _listed(site, every, as_json=args.json)
    wanted = [
        numbered_channel
        for numbered_channel in every
        if args.channel in (None, numbered_channel[0])
    ]
    if not wanted:
        there = f"{clean(str(site.path))} has {plural(len(every), 'channel')}"
        raise UsageError("there is no such channel to test", there, DOCS)
    return _tested(site, wanted, as_json=args.json)


def _tested(site: Site, wanted: list[tuple[int, NotifyModel]], *, as_json: bool) -> int:
    """Send a test to each channel from this process, and say what it answered."""
    from console.notify.channels import deliver
    from console.notify.event import TEST, Event

    event = Event(
        TEST, f"test:{os.urandom(8).hex()}", "a test", "omni-console notify --test sent this.",
        SystemClock().now(), site.name,
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for number, channel in wanted:
        answer = deliver(channel, event)
        words = clean(site.known.text(answer.words), 300)
        rows.append({"channel": number, "to": channel.words, "delivered": answer.delivered,
                     "answer": words})  # fmt: skip
        if not as_json:
            outcome = "delivered" if answer.delivered else "FAILED"
            print(f"{number}  {clean(channel.words)}: {outcome}, {words}")
    if as_json:
        print(redact.dumped({"key": event.key, "tested": rows}))
    return int(Exit.OK if all(row["delivered"] for row in rows) else Exit.INTERNAL)


def _listed(site: Site, every: list[tuple[int, NotifyModel]], *, as_json: bool) -> int:
    """Print each channel, what waits for it and how its last deliveries went."""
    from console.notify.outbox import Outbox, channel_id, wake

    box, now = Outbox(), SystemClock().now()
    items = box.items()
    rows: list[dict[str, Any]] = []
    for number, channel in every:
        queued = [
            message for message in items if channel_id(message.channel) == channel_id(channel)
        ]
        rows.append({"channel": number, "to": channel.words, "on": channel.on,
                     "queued": len(queued), **_last(box.state(channel))})  # fmt: skip
    others = len(items) - sum(row["queued"] for row in rows)
    if items:
        wake()
    if as_json:
        print(
            redact.dumped({"channels": rows, "queued_for_others": others, "log": str(box.logged)})
        )
        return int(Exit.OK)
    for row in rows:
        print(f"{row['channel']}  {clean(row['to'])}: {_told_of(row['on'])}")
        print(f"   {_standing(row, now)}")
    if not rows:
        print(f"{clean(site.name)} notifies nobody: {DOCS}")
    if others:
        print(f"{plural(others, 'message')} wait for channels that this site file does not have")
    if box.logged.exists():
        print(f"log: {clean(str(box.logged))}")
    return int(Exit.OK)


def _last(state: ChannelState) -> dict[str, Any]:
    return {"delivered_at": state.delivered, "failed_at": state.failed,
            "failed": state.answer, "failed_key": state.what}  # fmt: skip


def _told_of(kinds: list[str]) -> str:
    return "all but lessons-due" if tuple(kinds) == USUAL else ", ".join(kinds)


def _standing(row: dict[str, Any], now: float) -> str:
    parts = [f"{plural(row['queued'], 'message')} queued"] if row["queued"] else []
    if row["delivered_at"]:
        parts.append(f"last delivered {_ago(row['delivered_at'], now)}")
    if row["failed_at"]:
        what = clean(f"{row['failed_key']}: {row['failed']}", 200)
        parts.append(f"last failed {_ago(row['failed_at'], now)} ({what})")
    return "; ".join(parts) or "nothing sent yet"


def _ago(at: float, now: float) -> str:
    return f"{format_duration(max(0.0, now - at))} ago"
