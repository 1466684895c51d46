"""Starts, probes and ends model servers."""
