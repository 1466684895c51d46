"""Text, units, time, errors, paths and secrets: what every other room stands on."""
