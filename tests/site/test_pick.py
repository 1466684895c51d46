"""What `init --pick` says of a word that picks none of the servers that were found."""

from __future__ import annotations

import socket

import pytest

from console.common.errors import UsageError
from console.frontends.cli.site.init import _named
from console.host.ports import Listener
from console.runtime.discovery.servers import Search
from tests.ports import free_port

NOTHING = Search((), (), ())


@pytest.mark.parametrize("form", ["http://127.0.0.1:{}", "{}", ":{}", "http://localhost:{}/"])
def test_who_listens_there_and_is_no_server_is_named(form: str) -> None:
    """The hint was to give a URL, which had been given; then it spoke of a tunnel to whoever had
    picked a server of their own on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as tunnel, pytest.raises(UsageError) as refused:
        _named(NOTHING, form.format(tunnel.getsockname()[1]))
    assert "listens there, and is no model server of this machine" in refused.value.detail
    assert "described in a site file by hand" in refused.value.hint


@pytest.mark.parametrize(("words", "is_tunnel"), [
    ("ssh -N -L 8000:127.0.0.1:8000 box", True), ("/usr/bin/ssh -L 8000:b:80 box", True),
    ("ssh: /tmp/control [mux]", True), ("python3 -m uvicorn app:app", False), ("sshd-like", False),
])  # fmt: skip
def test_only_who_holds_a_tunnel_is_told_of_the_other_machine(
    monkeypatch: pytest.MonkeyPatch, words: str, is_tunnel: bool
) -> None:
    monkeypatch.setattr("console.host.ports.listener", lambda url: Listener(7, words))
    with pytest.raises(UsageError) as refused:
        _named(NOTHING, "8000")
    assert ("init on that one finds the server" in refused.value.hint) is is_tunnel


@pytest.mark.parametrize("word", ["nobody", "http://[::bad", "{}"])
def test_a_word_that_names_nothing_gets_the_forms_that_do(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        _named(NOTHING, word.format(free_port()))
    assert refused.value.detail == "none of those that were found"
    assert refused.value.hint.startswith("a number of the list")
