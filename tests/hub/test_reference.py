"""What an operator types, and what somebody else would."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.text import clean
from console.models.hub.reference import (
    BadReference,
    RepoReference,
    check_path,
    check_repo,
    check_revision,
    parse,
    typed,
)

SHARD = "Q4_K_M/m-00001-of-00009.gguf"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpt2", RepoReference("gpt2")),
        (" org/name ", RepoReference("org/name")),
        ("org/name@main", RepoReference("org/name", "main")),
        ("org/name@refs/pr/7", RepoReference("org/name", "refs/pr/7")),
        ("https://huggingface.co/org/name", RepoReference("org/name")),
        ("https://huggingface.co/org/name/", RepoReference("org/name")),
        ("https://hf.co/org/name/tree/v1.0", RepoReference("org/name", "v1.0")),
        ("https://huggingface.co/org/name/tree/main/Q4_K_M",
         RepoReference("org/name", "", "Q4_K_M")),
        (f"https://huggingface.co/org/name/resolve/main/{SHARD}?download=true",
         RepoReference("org/name", "", SHARD)),
        (f"https://huggingface.co/org/name/blob/abc/{SHARD}#L1",
         RepoReference("org/name", "abc", SHARD)),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1/a",
         RepoReference("org/name", "refs/pr/1", "a")),
        ("https://huggingface.co/org/name/tree/refs/pr/1/a",
         RepoReference("org/name", "refs/pr/1", "a")),
        ("https://huggingface.co/gpt2/tree/main", RepoReference("gpt2")),
        ("http://mirror.lan:8080/base/org/name/raw/v2/a.gguf",
         RepoReference("org/name", "v2", "a.gguf")),
        ("hf://org/name", RepoReference("org/name")),
        ("hf://models/org/name@v2/dir/a.gguf", RepoReference("org/name", "v2", "dir/a.gguf")),
        ("hf://org/name@refs/pr/3/a.gguf", RepoReference("org/name", "refs/pr/3", "a.gguf")),
        ("/nvme/models/r1", Path("/nvme/models/r1")),
        ("./org/name", Path("org/name")),
        ("..", Path("..")),
        ("here/deep/model.gguf", Path("here/deep/model.gguf")),
        ("here.gguf", Path("here.gguf")),
    ],
)  # fmt: skip
def test_forms(
    text: str, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/deep/model.gguf", "here.gguf", "org/name"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.lan:8080/base")
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("org/name", "./org/name"), (" r1 ", "./r1"), ("other/name", "other/name"),
        ("./r1", "./r1"), ("/r1", "/r1"), ("hf://org/name", "hf://org/name"), ("", ""),
    ],
)  # fmt: skip
def test_what_is_here_is_meant_by_whoever_types_its_name(
    text: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("org/name", "r1"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert typed(text) == meant


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert parse("~/models") == Path("/home/op/models")


BAD = [
    "",
    "org/../etc",
    "org/na..me",
    "org/name@",
    "org/name@../../x",
    "org/name@--upload-pack=x",
    "-rf/name",
    "org/\x1b[31mname",
    "org/na\u202eme",
    "a/b/c",
    "missing.gguf",
    "org/name.git",
    "org/" + "x" * 97,
    "https://huggingface.co/datasets/org/name",
    "hf://spaces/org/name",
    "https://huggingface.co/org/name/discussions/1",
    "https://huggingface.co/org/name/resolve/main/../../x",
    "https://huggingface.co/org/name/resolve/main/%2e%2e/x",
    "https://huggingface.co/org/name/resolve/main/a%00b",
    "https://hub:secret@huggingface.co/org/name",
    "https://huggingface.co.evil.example/org/name",
    "file:///etc/passwd",
    "https://[::1/org/name",
    "https://huggingface.co",
    "org/name:Q4_K_M",
]


def test_refusals() -> None:
    """Why is held by the test of words."""
    for text in BAD:
        with pytest.raises(BadReference) as caught:
            parse(text)
        assert caught.value.hint, text
        assert "secret" not in "".join(caught.value.lines())
        assert all(line.isprintable() for line in caught.value.lines())


def test_another_host_is_told_which_one_the_hub_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.lan")
    with pytest.raises(BadReference) as caught:
        parse("https://huggingface.co.evil.example/org/name")
    assert "mirror.lan" in caught.value.hint


def test_a_quantization_tag_is_told_how_to_say_it() -> None:
    with pytest.raises(BadReference) as caught:
        parse("org/name:Q4_K_M")
    assert "--include" in caught.value.hint


PIECES = st.sampled_from(
    ["hf://", "https://huggingface.co/", "org", "name", "/", "@", "..", "\x1b[2J", "%2e%2e", "%00",
     "\\", "-", "main", "tree", "resolve", ":", "?", "#", "\u202e", "é", " ", "\n"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_anything_is_a_harmless_reference_or_refused(text: str) -> None:
    found: object = None
    lines: list[str] = []
    try:
        found = parse(text)
    except BadReference as error:
        lines = error.lines()
    assert [clean(line) for line in lines] == lines
    if isinstance(found, RepoReference):
        assert check_repo(found.repo)
        assert not found.repo.startswith("-")
        assert not found.revision or check_revision(found.revision)
        assert not found.path or check_path(found.path)
