"""What CUDA_VISIBLE_DEVICES leaves of a machine's cards."""

import pytest

from console.checks.preflight.visible import seen
from console.host.sample import Card, Machine

LARGE = Card("large", uuid="GPU-aaaa-1", total=96 << 30)
SMALL = Card("small", uuid="GPU-bbbb-2", total=32 << 30)
MACHINE = Machine(cards=(LARGE, SMALL))
EQUAL = Machine(cards=(LARGE, Card("other", uuid="GPU-cccc-3", total=96 << 30)))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ["large", "small"]), ("", []), ("-1", []), ("1", ["small"]),
        ("1,0", ["small", "large"]), ("0,7,1", ["large"]), ("GPU-bbbb", ["small"]), ("GPU-", []),
        ("none", []), ("0,0", ["large"]),
    ],
)  # fmt: skip
def test_what_a_program_sees(value: str | None, names: list[str]) -> None:
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [card.name for card in seen(MACHINE, env)[0].cards] == names


def test_numbers_of_unequal_cards_are_sure_only_by_slot() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    assert [one.title for one in seen(MACHINE, env)[1]] == ["visible cards"]
    assert seen(MACHINE, {**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})[1] == []
    assert seen(MACHINE, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"})[1] == []
    assert seen(EQUAL, env)[1] == []
