"""Which container engine is meant, in the docker command's own order."""

import hashlib
import json
from pathlib import Path

import pytest

from console.common.errors import EngineError
from console.runtime.engine_address import Address, address, socket_of


def context(home: Path, name: str, host: str, *, current: bool = True) -> dict[str, str]:
    """The files of `docker context create NAME` and `docker context use NAME`."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    directory = home / ".docker" / "contexts" / "meta" / digest
    directory.mkdir(parents=True)
    metadata = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}
    (directory / "meta.json").write_text(json.dumps(metadata))
    if current:
        (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))
    return {"HOME": str(home)}


def test_the_usual_socket_without_any_choice(tmp_path: Path) -> None:
    assert address("", {"HOME": str(tmp_path)}) == Address("unix:///var/run/docker.sock")
    assert address("", {}) == Address("unix:///var/run/docker.sock")


def test_the_context_in_use_counts_after_the_variables(tmp_path: Path) -> None:
    environ = context(tmp_path, "rootless", "unix:///run/user/1000/docker.sock")
    meant = address("", environ)
    assert meant.host == "unix:///run/user/1000/docker.sock"
    assert "rootless" in meant.source
    context(tmp_path, "lab", "unix:///run/lab.sock", current=False)
    assert address("", environ | {"DOCKER_CONTEXT": "lab"}).host == "unix:///run/lab.sock"
    both = environ | {"DOCKER_CONTEXT": "lab", "DOCKER_HOST": "unix:///run/host.sock"}
    assert address("", both).host == "unix:///run/host.sock"
    assert address("unix:///run/site.sock", both).host == "unix:///run/site.sock"
    assert address("", environ | {"DOCKER_CONTEXT": "default"}) == address("", {})


def test_the_configuration_may_lie_elsewhere(tmp_path: Path) -> None:
    context(tmp_path, "desktop", "unix:///run/desktop.sock")
    environ = {"HOME": "/nowhere", "DOCKER_CONFIG": str(tmp_path / ".docker")}
    assert address("", environ).host == "unix:///run/desktop.sock"


def test_a_context_that_cannot_be_read_is_no_other_engine(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "DOCKER_CONTEXT": "gone"}
    with pytest.raises(EngineError, match="gone"):
        address("", environ)


@pytest.mark.parametrize("text", ["", "[]", "no json", '{"currentContext": null}', "[" * 100_000])
def test_a_broken_configuration_chooses_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(text)
    assert address("", {"HOME": str(tmp_path)}) == address("", {})


def test_an_engine_elsewhere_is_said_with_who_names_it(tmp_path: Path) -> None:
    environ = context(tmp_path, "far", "ssh://boss@host")
    with pytest.raises(EngineError, match="not on this machine") as raised:
        socket_of(address("", environ))
    assert "context far" in raised.value.detail
