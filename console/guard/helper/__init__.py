"""The root helper under the name by which units of an earlier version start it."""
