"""Kept for systemd units of the root helper that an earlier version wrote."""
