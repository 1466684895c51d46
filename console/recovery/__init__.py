"""Getting the baseline back, by the standard library alone."""
