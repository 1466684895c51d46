"""One real run of each kind, in every `make test`: real engines, runner, warm ladder and sentinel.

The same tests run in `tests/run/whole` on a scripted machine; the rest of them is repeated here by
`make test-all`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.run.e2e.conftest import ONE_OF_EACH_KIND
from tests.run.whole.test_emergency import (
    test_rollback_during_a_benchmark,
    test_with_the_warm_ladder_gone,
)
from tests.run.whole.test_exit_codes import (
    test_go_measures_the_exclusive_candidate_and_restores_the_baseline,
)

HERE = Path(__file__).parent


def test_make_test_has_one_of_each_kind() -> None:
    """A test that is renamed would leave `make test` without a word."""
    defined = re.findall(
        r"^(?:def |    )(test_\w+)[(,]", "".join(p.read_text() for p in HERE.glob("*.py")), re.M
    )
    names = [name.partition("[")[0] for name in ONE_OF_EACH_KIND]
    assert [name for name in names if name not in defined] == []


__all__ = [
    "test_go_measures_the_exclusive_candidate_and_restores_the_baseline",
    "test_rollback_during_a_benchmark",
    "test_with_the_warm_ladder_gone",
]
