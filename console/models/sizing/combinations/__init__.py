"""What an engine is known to do at once: which features a plan and a model have in use beyond the
plain way, and for each pair of them whether the engine takes it, refuses it, or nobody knows."""
