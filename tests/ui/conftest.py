"""Fixtures of the screens' tests."""

from __future__ import annotations

import os

# Read by Textual at its import, as the console's own start does.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_FPS", "60")
