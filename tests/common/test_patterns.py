"""Patterns that are compiled when they are first used are those that `re.compile` makes."""

import gc
import re
import subprocess
import sys

from console.common import redact
from console.common.patterns import _Lazy, lazy


def test_a_pattern_is_compiled_once_and_at_its_first_use() -> None:
    pattern = lazy(r"(?P<word>a+)b", re.IGNORECASE)
    assert "search" not in vars(pattern)
    found = pattern.search("xAAb")
    assert found is not None
    assert (found["word"], found.span()) == ("AA", (1, 4))
    assert pattern.pattern == r"(?P<word>a+)b"
    assert [one[0] for one in pattern.finditer("ab AB")] == ["ab", "AB"]
    assert vars(pattern)["search"] is vars(pattern)["search"], "the compiled pattern's own"


def test_each_that_hides_secrets_can_be_compiled() -> None:
    assert redact.text("plain words") == "plain words"
    patterns = [one for one in gc.get_objects() if isinstance(one, _Lazy)]
    assert len(patterns) > 100
    assert all(one.groups >= 0 for one in patterns)


def test_a_program_that_prints_nothing_compiles_few() -> None:
    script = (
        "import re; made = []; own = re.compile\n"
        "re.compile = lambda *given: made.append(given) or own(*given)\n"
        "import console.common.text; print(len(made))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(done.stdout) < 40
