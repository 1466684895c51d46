"""What is said of a document that is refused: each with its place."""

import re
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from tests.yaml.test_reader import refused, refused_file, write

BOMB = "a: &a [x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
REFUSED = [
    BOMB, "a: &x 1", "&x a: 1", "a: 1\nb: *x", "- *x", "a: {<<: *base}",
    "a: !!str 1", "a: !!python/object/apply:os.system [id]", "a: !secret x", "a: ! x",
    "a: !include /etc/passwd", "!!map {a: 1}",
    "a: 1\n---\nb: 2", "--- a\n--- b\n", "{[a]: b, c: d}", "? {a: b}\n: c\nd: e",
    "a:\n\tb: 1", "a: b: c", "a: [1, 2", "a: [x, y", "a: 'open", "a: 1\n b: 2", "a: @x", "a: > 20",
    "{a: > 20}", "a: 90%: done", "a: \x00", "a: \x1b[31m", 'a: "\\q"', 'a: "\\uD83D"',
    '"\\uDC00": 1', 'a: "\\UFFFFFFFF"', "port: 010",
    "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 4\na: 5\n",
]  # fmt: skip


def own(line: str) -> str:
    """Without the words of the YAML library."""
    return re.sub(r"(not YAML): .*?( \(hint: .*)?$", r"\1\2", line)


def test_documents(snapshot: SnapshotAssertion) -> None:
    said = [line for text in REFUSED for line in (ascii(text[:60]), *map(own, refused(text)))]
    assert "\n".join(said) == snapshot


def test_files(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    sparse = tmp_path / "sparse.yaml"
    with sparse.open("wb") as out:
        out.truncate(100 * 2**20)
    paths = [tmp_path / "none", tmp_path, Path("/dev/zero"), sparse]
    paths.append(write(tmp_path, b"a: 1\nb: \xff\n"))
    said = [refused_file(path).replace(str(tmp_path), "TMP") for path in paths]
    assert "\n".join(said) == snapshot
