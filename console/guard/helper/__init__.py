"""The root helper under the name that units of an earlier version start it by."""
