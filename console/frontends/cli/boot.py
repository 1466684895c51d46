"""`boot`: the unit that brings the baseline back after a reboot in the middle of an outage."""

from __future__ import annotations

import json
from argparse import Namespace

from console.common.errors import Exit
from console.common.text import clean
from console.host import boot_unit
from console.runner import boot


def install(args: Namespace) -> int:
    one = boot_unit.unit(args.system)
    boot.install(one, args.site)
    return _say(args, one, f"installed: {one.path}; it acts after the next reboot")


def remove(args: Namespace) -> int:
    """0, also where there is nothing to remove."""
    one = boot_unit.unit(args.system)
    gone = boot.remove(one)
    return _say(args, one, f"removed: {one.path}" if gone else f"nothing to remove: {one.path}")


def status(args: Namespace) -> int:
    """0 when a unit would act after a reboot, 5 when none would."""
    one = boot_unit.installed()
    if one is None:
        return _say(args, None, "not installed: omni-console boot install", Exit.FAILED)
    if not one.lingers:
        words = f"{one.path} waits for a login: sudo loginctl enable-linger {one.user}"
        return _say(args, one, words, Exit.FAILED)
    return _say(args, one, f"installed: {one.path}, as {one.user}")


def _say(args: Namespace, one: boot_unit.Unit | None, words: str, code: Exit = Exit.OK) -> int:
    if args.json:
        path = str(one.path) if one is not None else ""
        active = one is not None and one.enabled() and one.lingers
        print(json.dumps({"unit": path, "active": active, "detail": words}))
    else:
        print(clean(words))
    return int(code)
