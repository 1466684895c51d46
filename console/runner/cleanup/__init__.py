"""Finds what old trials left on the disks, and removes what the operator names."""
