"""Kept for a demo's site file that an earlier version wrote."""
