"""Names that the list of commands has, too: it loads nothing else of this room."""

CANDIDATES = ("fast", "slow", "garbled")
"""What the embedded demo can try against its baseline."""
