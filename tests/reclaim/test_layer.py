"""What images free together: shared layers once, and never more than would be free."""

from __future__ import annotations

import pytest

from console.runner.cleanup.leftover import Stored, together

LAYERS = {"base": 100, "a": 10, "b": 20, "c": 5, "d": 7}


def images(**made: str) -> tuple[Stored, ...]:
    """Images by name, each the names of its layers; sizes and what is shared as an engine says."""
    piles = {name: tuple(words.split()) for name, words in made.items()}
    found = []
    for name, pile in piles.items():
        others = [one for other, one in piles.items() if other != name]
        deep = max(sum(pile[: n + 1] == one[: n + 1] for n in range(len(pile))) for one in others)
        size, shared = (sum(LAYERS[one] for one in part) for part in (pile, pile[:deep]))
        found.append(Stored(name, size, shared, pile))
    return tuple(found)


TWINS = images(x="base a", y="base a", z="base a", other="base b")


@pytest.mark.parametrize(
    ("going", "freed"),
    [("x", 0), ("x y", 0), ("x y z", 10), ("x y z other", 130), ("other", 20), ("", 0)],
)
def test_a_layer_goes_with_the_last_that_has_it(going: str, freed: int) -> None:
    assert together(going.split(), TWINS) == (freed, True)


def test_the_order_of_the_list_says_nothing() -> None:
    assert together(["x", "y", "z"], TWINS[::-1]) == (10, True)


def test_it_is_at_least_what_is_known() -> None:
    # x and y stand on `base a`, which neither shares with anything as deep as that
    pile = images(x="base a b c", x2="base a b c", y="base a b d", y2="base a b d", far="base d")
    freed, exact = together(["x", "x2", "y", "y2"], pile)
    true = sum(LAYERS[one] for one in "abcd")
    assert (freed <= true, exact) == (True, False)


def test_without_layers_each_has_its_own() -> None:
    blind = (Stored("x", 10, 4), Stored("y", 10, 4))
    assert together(["x", "y"], blind) == (12, False)
