"""`bridge`: the far side of `fleet`, which ssh starts on each host."""

from __future__ import annotations

import os
import socket
from argparse import Namespace
from typing import Any

from console.common.clock import SystemClock
from console.common.errors import Exit
from console.common.text import clean
from console.config.locate import site as site_of
from console.fleet.bridge import Bridge, own_stdio
from console.fleet.protocol import Lines
from console.frontends.cli.arguments import VERSION


def bridge(args: Namespace) -> int:
    """Answer questions until stdin ends."""

    def look() -> dict[str, Any]:
        # not before the hello: an emergency needs none of it
        from console.frontends.cli.fleet.state import state_of

        return state_of(args.site)

    source, send = own_stdio()
    named = args.site or os.environ.get("OMNI_SITE", "")
    far = Bridge(look, lambda: site_of(args.site), SystemClock(), named)
    far.serve(Lines(source), send, VERSION, clean(socket.gethostname(), 100))
    return int(Exit.OK)
