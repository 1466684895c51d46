"""One real run of each kind, in every `make test`: real engines, runner, warm ladder and sentinel.

The same tests run in `tests/run/whole` on a scripted machine; the rest of them is repeated here by
`make test-all`.
"""

from __future__ import annotations

from tests.run.whole.test_emergency import (
    test_rollback_during_a_benchmark,
    test_with_the_warm_ladder_gone,
)
from tests.run.whole.test_exit_codes import (
    test_go_measures_the_exclusive_candidate_and_restores_the_baseline,
)

__all__ = [
    "test_go_measures_the_exclusive_candidate_and_restores_the_baseline",
    "test_rollback_during_a_benchmark",
    "test_with_the_warm_ladder_gone",
]
