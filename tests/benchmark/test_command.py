"""`omni-console bench URL`: figures, a crowd beside them, and what makes no sense."""

from __future__ import annotations

import re

import pytest

from console.cli import main
from tests.benchmark.scripted import reply, scripted, streams


def test_a_crowd_is_told_beside_the_single_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(streams(reply(8))) as server:
        asked = ["bench", server.url, "--runs", "2", "--max-tokens", "8", "--concurrency", "3"]
        assert main(asked) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^decode_tok_s +[0-9]", out, re.MULTILINE)
    assert re.search(r"^3 streams +all .* TTFT .* \(9 of 9 requests valid\)$", out, re.MULTILINE)
    assert "run 2/2" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://127.0.0.1:1", "--concurrency", "0"], "2 to 64 streams"),
        (["http://127.0.0.1:1", "--runs", "0"], "at least one"),
        (["ftp://x"], "is not a URL"),
    ],
)
def test_nothing_is_sent_for_bad_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
