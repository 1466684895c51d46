"""Running `docker compose`: argv lists, an allow-listed environment, one deadline for all of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from console.common.errors import EngineError, EngineTimeout, ServiceError
from console.common.text import clean_lines, decode, one_line
from console.common.units import format_duration
from console.host import children
from console.runtime.docker.engine_state import Say

UP_S = 90.0
"""Creating and starting one container, images being local, seconds."""
ALLOWED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "XDG_CONFIG_HOME")
"""What compose needs from the environment, besides DOCKER_*; variables of the compose file come
from its `.env` or from the playbook's `env:`."""
_UNSET = re.compile(r'The \\?"(\w+)\\?" variable is not set')
_NO_PLUGIN = ("is not a docker command", "unknown shorthand flag: 'f'", "unknown flag: --profile")


def compose(
    argv: Sequence[str], host: str, env: Mapping[str, str], what: str, seconds: float, say: Say
) -> str:
    """The stdout of a compose command; foreign, not clean.

    Raises EngineError without docker or its plugin, EngineTimeout, ServiceError with the end of
    stderr.
    """
    code, out, error = _run(argv, _environment(host, env), what, seconds)
    text = decode(error)
    if code != 0:
        if any(sign in text for sign in _NO_PLUGIN):
            raise EngineError(
                "Docker Compose is missing",
                "the docker command has no compose plugin",
                "install the docker-compose-plugin package (Compose v2)",
            )
        lines = [line.strip() for line in clean_lines(text, 500) if line.strip()]
        raise ServiceError(f"{what} failed", "\n".join(lines[-6:]) or f"exit code {code}")
    for name in sorted(set(_UNSET.findall(text))):
        say(f"the compose file uses ${one_line(name)}, which is empty: set it under `env:`")
    return decode(out)


def _environment(host: str, env: Mapping[str, str]) -> dict[str, str]:
    # The command must speak to the very engine the library speaks to, whatever context is set.
    kept = {
        key: value for key, value in os.environ.items()
        if key in ALLOWED or (key.startswith("DOCKER_") and key != "DOCKER_CONTEXT")
    }  # fmt: skip
    return {**kept, **env, "DOCKER_HOST": host}


def _run(
    argv: Sequence[str], env: Mapping[str, str], what: str, seconds: float
) -> tuple[int, bytes, bytes]:
    program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
    if program is None:
        raise EngineError(
            "There is no docker command", "compose services need it", "install docker-ce-cli"
        )
    try:
        return children.run([program, *argv[1:]], seconds, env=env)
    except subprocess.TimeoutExpired:
        raise EngineTimeout(
            f"{what} did not finish within {format_duration(seconds)}",
            "the compose command was killed; the engine may still carry it out",
            "`docker ps -a` shows what it made",
        ) from None
    except OSError as error:
        raise EngineError("The docker command cannot be run", error.strerror or "") from None
