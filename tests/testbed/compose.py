"""The Compose v2 plugin, which Debian 12 does not carry, put where one DOCKER_CONFIG sees it."""

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import Unavailable, command, folder, locked

# The newer one is nearer to what operators run; the older one stays put when sid is in motion.
SUITES = ("sid", "trixie")


def docker_config() -> Path:
    """The folder for DOCKER_CONFIG, so that nobody's own Docker settings are read or written."""
    return folder("docker-config")


def version(docker: str, config: Path) -> str | None:
    env = {"DOCKER_CONFIG": str(config)}
    try:
        text = command([docker, "compose", "version", "--short"], env=env, timeout=30).strip()
    except Unavailable:
        return None
    found = re.match(r"v?(\d+)\.", text)
    return text.lstrip("v") if found and int(found.group(1)) >= 2 else None


def refusal(file: Path, clients: list[str]) -> str:
    """What compose itself says against a file; "" if it takes it. The plugin by itself, where the
    testbed placed it, says the same, and spares each call the client that would look for it."""
    client, _ = ensure_compose(clients)
    plugin = docker_config() / "cli-plugins" / "docker-compose"
    words = [str(plugin)] if plugin.exists() else [client, "compose"]
    argv = [*words, "-f", str(file), "config", "-q"]
    env = {**os.environ, "DOCKER_CONFIG": str(docker_config()), "GOGC": "off"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
    return f"exit {done.returncode}: {done.stderr}" if done.returncode else ""


def ensure_compose(clients: list[str]) -> tuple[str, str]:
    """A docker client that runs Compose v2, and its version; the plugin is fetched if need be."""
    return _ensured(tuple(clients))


@cache
def _ensured(clients: tuple[str, ...]) -> tuple[str, str]:
    """Asked once a session, as each answer takes two processes."""
    if not clients:
        raise Unavailable("there is no docker client on this machine")
    with locked("compose"):
        found = _working(clients)
        if found:
            return found
        problems = []
        for suite in SUITES:
            try:
                _place(suite)
            except Unavailable as error:
                problems.append(error.reason)
                continue
            found = _working(clients)
            if found:
                return found
            problems.append(f"the plugin of {suite} does not answer")
    raise Unavailable(f"no Compose v2 plugin: {'; '.join(problems)}")


def _working(clients: tuple[str, ...]) -> tuple[str, str] | None:
    for client in clients:
        answer = version(client, docker_config())
        if answer:
            return client, answer
    return None


def _place(suite: str) -> None:
    plugins = docker_config() / "cli-plugins"
    plugins.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder("work")) as work:
        packages = debian.fetch(suite, ["docker-compose"], Path(work), depends=False)
        debian.unpack(packages, Path(work) / "root")
        binaries = list((Path(work) / "root").glob("usr/**/cli-plugins/docker-compose"))
        if not binaries:
            raise Unavailable(f"docker-compose of {suite} holds no plugin")
        # Replaced in one step: a test that starts meanwhile never sees half a file.
        shutil.copy2(binaries[0], plugins / ".docker-compose.new")
        (plugins / ".docker-compose.new").replace(plugins / "docker-compose")
