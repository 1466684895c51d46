"""Text, units, time, errors, paths and secrets: the basis of every other room."""
