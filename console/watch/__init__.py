"""The watch over the baseline, day and night: does it answer, how fast, and what changed."""
