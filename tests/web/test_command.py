"""`omni-console web` as a process: what it refuses, the links that it prints, how it ends."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from console.cli import main
from console.frontends.cli import web as command
from tests.ui.place import Place
from tests.waiting import until
from tests.web.served import Served


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place.begin(tmp_path)
    try:
        yield made
    finally:
        made.close()


def enter(client: httpx.Client, base: str, token: str) -> int:
    answer = client.post(
        f"{base}/api/enter", headers={"Origin": base}, content=json.dumps({"token": token})
    )
    return answer.status_code


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_an_address_that_others_reach_is_refused(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--address", address, "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "is not a loopback address" in said
    assert "ssh -L" in said


def test_without_the_extra_it_says_which_line_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "EXTRA", ("uvicorn", "no_such_library"))
    assert main(["web", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "no_such_library is not installed" in said
    assert f"{sys.executable} -m pip install 'omni-console[web]'" in said


def test_each_line_that_is_typed_makes_a_new_link_and_voids_the_last(place: Place) -> None:
    served = Served(place, "--port", "0")
    try:
        first, base = served.token, served.base
        assert base.startswith("http://127.0.0.1:")
        assert served.link().startswith(f"{base}/enter#")
        second = served.token
        with httpx.Client(trust_env=False, verify=False) as client:
            assert [enter(client, base, one) for one in (first, second, second)] == [403, 200, 403]
        assert served.said.count(second) == 0, "it is printed once"
    finally:
        code = served.close()
    assert code == 0
    assert second not in served.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_unix_socket_is_served_and_goes_with_the_server(place: Place, number: int) -> None:
    path = place.root / "web.sock"
    served = Served(place, "--socket", str(path))
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, trust_env=False) as client:
            assert client.get("http://localhost:4711/").status_code == 200
            assert client.get("http://evil.example/").status_code == 403
            assert enter(client, "http://localhost:4711", served.token) == 200
    finally:
        served.child.send_signal(number)
        until(lambda: served.child.poll() is not None, "it ends")
        assert served.close() == 0
    assert not path.exists()


def test_it_goes_on_without_a_standard_input(place: Place) -> None:
    served = Served(place, "--port", "0", "--address", "::1")
    try:
        assert served.child.stdin is not None
        served.child.stdin.close()
        with httpx.Client(trust_env=False, verify=False) as client:
            assert served.base.startswith("http://[::1]:")
            assert client.get(f"{served.base}/").status_code == 200
            assert os.path.exists(f"/proc/{served.child.pid}")
            assert enter(client, served.base, served.token) == 200
    finally:
        code = served.close()
    assert code == 0
