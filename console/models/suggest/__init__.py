"""What would fit: the placements that an engine has, and the search for the largest context."""
