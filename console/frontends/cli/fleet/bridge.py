"""`bridge`: the far side of `fleet`, which ssh starts on each host."""

from __future__ import annotations

import os
import socket
from argparse import Namespace

from console.common.clock import SystemClock
from console.common.errors import Exit
from console.common.text import clean
from console.config.locate import site as site_of
from console.fleet.bridge import Bridge, own_stdio
from console.fleet.protocol import Lines
from console.frontends.cli.arguments import VERSION


def bridge(args: Namespace) -> int:
    """Answer questions until stdin ends."""
    from console.frontends.cli.fleet.state import state_of

    source, send = own_stdio()
    far = Bridge(
        lambda: state_of(args.site), lambda: site_of(args.site), SystemClock(),
        args.site or os.environ.get("OMNI_SITE", ""),
    )  # fmt: skip
    far.serve(Lines(source), send, VERSION, clean(socket.gethostname(), 100))
    return int(Exit.OK)
