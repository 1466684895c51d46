"""A thousand files through `omni-console lint`, a quarter of them large playbooks, beside a bare
parse of the same files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row, in_turns

FILES, PAIRS = 1000, 3
LARGE = "ik-llama-phase2.yaml"
BAR = Bar(most_ratio=20.0)
"""The bare parse is C alone, a fifth of a second: twenty of it stay below half of ten seconds."""
BARE = """\
import sys, pathlib, tree_sitter, tree_sitter_bash, yaml
shell = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    data = path.read_bytes()
    if path.suffix == ".yaml":
        list(yaml.parse(data, Loader=yaml.CSafeLoader))
    else:
        shell.parse(data)
"""
TEXTS = {
    "Dockerfile.{}": "FROM nvidia/cuda:12.8.0-devel-ubuntu22.04\n"
    + "RUN apt-get update && apt-get install -y \\\n    git cmake curl && \\\n    rm -rf /x\n" * 10,
    "run-{}.sh": "set -eu\nfor one in a b; do\n  echo \"$one\" | sed 's/a/b/' >> out\ndone\n" * 15,
    "stack-{}.yaml": "services:\n"
    + "".join(
        f"  s{n}:\n    image: own/{n}:1\n    command: [serve, --port, '{n}']\n"
        f"    environment: {{A: '{n}'}}\n"
        for n in range(10)
    ),
}


def run(say: Callable[[str], None]) -> list[Row]:
    """Both over the same thousand files, process start included."""
    with surroundings.workplace() as place:
        folder = Path(place, "files")
        folder.mkdir()
        book = resources.files("playbooks").joinpath(LARGE).read_text("utf-8")
        texts = [*TEXTS.items(), ("book-{}.yaml", book)]
        for number in range(FILES):
            name, text = texts[number % len(texts)]
            (folder / name.format(number)).write_text(text)
        env = surroundings.environment(place)
        ways = {
            "lint": surroundings.timed([*surroundings.command(), "lint", str(folder)], env),
            "bare": surroundings.timed([sys.executable, "-c", BARE, str(folder)], env),
        }
        times = in_turns(ways, PAIRS, warm_up=1)
    say(f"lint of {FILES} files: best {min(times['lint']):.2f} s")
    return [Row(f"lint, {FILES} files", "bare parse", times["lint"], times["bare"], BAR)]
