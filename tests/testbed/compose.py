"""The Compose v2 plugin, which Debian 12 does not carry, put where one DOCKER_CONFIG sees it."""

import re
import shutil
import tempfile
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


def ensure_compose(clients: list[str]) -> tuple[str, str]:
    """A docker client that runs Compose v2, and its version; the plugin is fetched if need be."""
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


def _working(clients: list[str]) -> tuple[str, str] | None:
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
