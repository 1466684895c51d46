"""Finds the flags with which an engine is fastest: the space of flags, the search, the points."""
