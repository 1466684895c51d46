"""The systemd unit of the watch. It is installed like the boot unit, and starts at once.

Its KillMode is `process`: what a restore started, a baseline of host processes above all, outlives
the watch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from console.common.paths import module_argv
from console.host import systemd
from console.host.systemd import Unit

UNIT = """\
[Unit]
Description=Watches the LLM baseline: does it answer, is it as fast as it was
{order}
[Service]
Type=exec
{user}{environment}ExecStart={command}
Restart=always
RestartSec=15
RestartPreventExitStatus=2
KillMode=process
OOMPolicy=continue

[Install]
WantedBy={target}
"""


def text_of(unit: Unit, site: str | None, environment: Mapping[str, str]) -> str:
    """The unit file's text. Raises UsageError for values that a unit file cannot express."""
    argv = [*module_argv("console.cli"), "watch", "run"]
    argv += ["--site", os.path.abspath(site)] if site else []
    return systemd.filled(UNIT, unit, argv, environment)
