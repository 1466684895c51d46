"""`python -m tests.ui.pictures`: the README's pictures, exported by the app from fixed scenes."""

import asyncio
import os
import tempfile
import time
from importlib import import_module
from pathlib import Path

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ["TZ"] = "UTC"

from tests.ui.test_snapshots import CLOCKS, STANDING, app_of, drawn

PLACE = Path(__file__).resolve().parents[2] / "docs" / "screens"
PICTURES: dict[str, tuple[str, tuple[int, int], tuple[str, ...]]] = {
    "running": ("running", (100, 30), ()),
    "approval": ("approval", (100, 30), ()),
    "failed": ("failed", (60, 20), ()),
    "rollback": ("running", (100, 24), ("f12",)),
    "breach": ("breached", (100, 30), ("b",)),
}


async def take(name: str, place: Path) -> None:
    made, size, keys = PICTURES[name]
    app = app_of(made, place)
    async with app.run_test(size=size) as pilot:
        await drawn(pilot, keys)
        (PLACE / f"{name}.svg").write_text(app.export_screenshot(title="omni-console"), "utf-8")


def main() -> None:
    time.tzset()
    for module in CLOCKS:
        import_module(module).time = STANDING  # type: ignore[attr-defined]
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(take(name, Path(place)))


if __name__ == "__main__":
    main()
