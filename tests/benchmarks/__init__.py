"""Side by side with the bare thing it stands on: `python -m tests.benchmarks [name…]`."""
