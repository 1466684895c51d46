"""`fleet`, and `bridge`, its far side."""
