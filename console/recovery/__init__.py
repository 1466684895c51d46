"""The emergency side: it brings the baseline back with the standard library alone."""
