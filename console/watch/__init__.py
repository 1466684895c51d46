"""The watch over the baseline, day and night: does it answer, is it as fast as it was, what changed."""
