"""`bridge`: the far side of `fleet`, which ssh starts on each host."""

from __future__ import annotations

import os
import socket
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from console import VERSION
from console.common.clock import SystemClock
from console.common.errors import Exit
from console.common.text import clean
from console.config.locate import site as site_of
from console.fleet.bridge import Bridge, own_stdio
from console.fleet.protocol import Lines

if TYPE_CHECKING:
    from console.frontends.cli.fleet.state import HostState
    from console.host.gpu.inventory import GpuInventory


def bridge(args: Namespace) -> int:
    """Answer questions until stdin ends."""

    clock = SystemClock()
    gpu_queries: list[GpuInventory] = []
    kept: list[HostState] = []

    def look() -> dict[str, Any]:
        if not kept:
            # not before the hello: an emergency needs none of it
            from console.host.gpu.inventory import GpuInventory

            gpu_queries.append(GpuInventory(clock))
            gpu_queries[-1].begin()  # its process answers while the rest is imported
            from console.frontends.cli.fleet.state import HostState

            kept.append(HostState(args.site, gpu_queries[-1]))
        return kept[0].look()

    source, send = own_stdio()
    named = args.site or os.environ.get("OMNI_SITE", "")
    host_bridge = Bridge(look, lambda: site_of(args.site), clock, named)
    host_bridge.serve(Lines(source), send, VERSION, clean(socket.gethostname(), 100))
    for gpu_query in gpu_queries:
        gpu_query.close()
    return int(Exit.OK)
