"""Kept for a systemd unit of the root helper that an earlier version wrote."""
