"""Model files: their headers, where they are from, and whether they fit."""
