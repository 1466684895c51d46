"""A prediction that is kept, read again, and held against what is."""

from __future__ import annotations

import json

import pytest

from console.models.sizing.assess import assess
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.load_curve import Envelope, Point
from tests.fit import shapes
from tests.fit.site import BASELINE, GIB, SITE

Q3 = assess(from_gguf(shapes.deepseek_r1("Q3_K_M")), BASELINE, SITE).envelope


def test_it_survives_json() -> None:
    for envelope in (Q3, Envelope()):
        assert Envelope.from_json(json.loads(json.dumps(envelope.to_json()))) == envelope


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"schema": 2, "points": []}, {"schema": 1}, {"schema": 1, "points": [1]},
        {"schema": 1, "points": [{}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "ram": -1}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "ram": True}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {}, "at_s": float("nan")}]},
        {"schema": 1, "points": [{"phase": "x", "vram": {"a": "much"}, "ram": 1}]},
    ],
)  # fmt: skip
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="envelope"):
        Envelope.from_json(data)


def test_text_from_a_file_is_clean() -> None:
    point = {"phase": "a\x1b[31m", "vram": {"b\x07": 1}, "ram": 0, "page_cache": 0, "swap": 0}
    read = Envelope.from_json({"schema": 1, "points": [point]}).points[0]
    assert read.phase.isprintable()
    assert read.vram[0][0].isprintable()


def test_slack_is_a_tenth_or_two_gib() -> None:
    flat = Envelope((Point("x", ram=100 * GIB),))
    assert flat.outside(ram=110 * GIB) is None
    assert flat.outside(ram=110 * GIB + 1) is not None
    small = Envelope((Point("x", ram=1 * GIB),))
    assert small.outside(ram=3 * GIB) is None
    assert small.outside(ram=3 * GIB + 1) is not None
