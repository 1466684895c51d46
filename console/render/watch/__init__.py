"""The watch over the baseline for people and for Prometheus."""
