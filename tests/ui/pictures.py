"""`python -m tests.ui.pictures`: the README's pictures, exported by the app from fixed scenes."""

import asyncio
import os
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ["TZ"] = "UTC"

from tests.ui import scene
from tests.ui.test_snapshots import app_of, drawn

PLACE = Path(__file__).resolve().parents[2] / "docs" / "screens"
PICTURES: dict[str, tuple[str, tuple[int, int], tuple[str, ...]]] = {
    "running": ("running", (140, 42), ()),
    "small": ("running", (80, 24), ()),
    "wide": ("running", (200, 60), ()),
    "held": ("held", (100, 30), ()),
    "approval": ("approval", (100, 30), ()),
    "failed": ("failed", (60, 20), ()),
    "rollback": ("running", (100, 24), ("f12",)),
    "breach": ("breached", (100, 30), ("b",)),
}


TOUR: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("loading", ()), ("running", ()), ("approval", ()), ("breached", ("b",)), ("running", ("f12",)),
)  # fmt: skip
"""Scenes of the moving picture, and the keys that lead on."""
TOUR_SIZE, TOUR_S = (100, 30), 4
KEYFRAMES = "@keyframes show {{ 0%, {0:g}% {{ opacity: 1 }} {1:g}%, 100% {{ opacity: 0 }} }}"


async def taken(made: str, size: tuple[int, int], keys: tuple[str, ...], place: Path) -> str:
    """One screen as SVG."""
    app = app_of(made, place)
    async with app.run_test(size=size) as pilot:
        await drawn(pilot, keys)
        return app.export_screenshot(title="omni-console")


async def tour() -> str:
    """The scenes of TOUR one after the other, for TOUR_S seconds each, as one SVG that moves."""
    count, frames, box = len(TOUR), [], ""
    for number, (made, keys) in enumerate(TOUR):
        with tempfile.TemporaryDirectory() as place:
            drawing = await taken(made, TOUR_SIZE, keys, Path(place))
        drawing = drawing.replace("terminal-", f"t{number}-")
        box = drawing.split('viewBox="', 1)[1].split('"', 1)[0]
        delay = TOUR_S * number - count * TOUR_S
        frames.append(f'<g class="frame" style="animation-delay: {delay}s">{drawing}</g>')
    show = KEYFRAMES.format(100 / count, 100 / count + 0.1)
    style = f"{show} .frame {{ animation: show {count * TOUR_S}s step-end infinite; opacity: 0 }}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}"><style>{style}</style>'
    return f"{head}{''.join(frames)}</svg>\n"


async def pictures() -> dict[str, str]:
    """Every picture of the docs, by the name of its file."""
    found = {}
    for name, (made, size, keys) in PICTURES.items():
        with tempfile.TemporaryDirectory() as place:
            found[f"{name}.svg"] = await taken(made, size, keys, Path(place))
    return {**found, "tour.svg": await tour()}


def main() -> None:
    time.tzset()
    for module in scene.CLOCKS:
        import_module(module).time = scene.STANDING  # type: ignore[attr-defined]
    PLACE.mkdir(parents=True, exist_ok=True)
    for name, drawing in asyncio.run(pictures()).items():
        (PLACE / name).write_text(drawing, "utf-8")


if __name__ == "__main__":
    main()
