"""`watch` and `metrics`."""
