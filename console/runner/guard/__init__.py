"""The runner's side of the guard: the guard config, the sentinel's process, and its messages."""
