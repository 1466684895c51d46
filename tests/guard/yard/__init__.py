"""Real memory pressure for tests and benchmarks, bounded: never more than 4 GiB at once, thresholds
relative to what this machine has left, and hogs that die with whoever started them."""
