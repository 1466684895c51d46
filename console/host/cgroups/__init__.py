"""Control groups: a container's by its id, one of its own for a host process, and their limits."""
