"""Measuring a server: one request, a benchmark, a soak test."""
