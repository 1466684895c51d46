"""Model files: their headers, their sources, and whether they fit."""
