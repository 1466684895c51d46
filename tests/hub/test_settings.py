"""The environment as `hf` reads it; the library itself is the witness."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.models.hub import settings

ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"HF_HUB_CACHE": "/x/cache"},
    {"HF_HOME": "/x/home"},
    {"HF_HOME": "", "XDG_CACHE_HOME": "/x/xdg"},
    {"HF_HOME": "$HOME/there", "HUGGINGFACE_HUB_CACHE": "~/legacy"},
    {"HF_ENDPOINT": "https://mirror.lan/"},
]
"""An empty value stands for a variable that is not set."""
ASK = """
import importlib, json, os, sys
from huggingface_hub import constants as c
told = []
for env in json.loads(sys.argv[1]):
    before = dict(os.environ)
    os.environ.update(env)
    for name in [name for name, value in env.items() if not value]:
        del os.environ[name]
    importlib.reload(c)
    told.append([c.HF_HUB_CACHE, c.HF_HOME, c.ENDPOINT])
    os.environ.clear()
    os.environ.update(before)
print(json.dumps(told))
"""


def test_places_are_the_librarys_own() -> None:
    argv = [sys.executable, "-c", ASK, json.dumps(ENVIRONMENTS)]
    told = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    for env, expected in zip(ENVIRONMENTS, told, strict=True):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
                if not value:
                    patch.delenv(name)
            ours = [str(settings.cache()), str(settings.home()), settings.endpoint()]
        assert ours == expected, env


def test_token_of_the_environment_then_of_the_file(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.token() == ""
    (login / "token").write_text("stored\n")
    assert settings.token() == "stored"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert settings.token() == ""
    monkeypatch.setenv("HF_TOKEN", "fromenv")
    assert settings.token() == "fromenv"
    for unusable in ("two words", "esc\x1b"):
        monkeypatch.setenv("HF_TOKEN", unusable)
        assert settings.token() == ""


@pytest.mark.parametrize(
    "text", ["ftp://x", "huggingface.co", "https://", "http://a b", "http://x?y", "http://[::1"]
)
def test_an_address_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", text)
    with pytest.raises(UsageError) as caught:
        settings.endpoint()
    assert "HF_ENDPOINT" in caught.value.hint


def test_an_address_with_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://op:geheim@mirror.lan")
    with pytest.raises(UsageError) as caught:
        settings.endpoint()
    assert "geheim" not in "\n".join(caught.value.lines())
