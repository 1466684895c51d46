"""What the guard observes: memory, GPUs, disks, logs, and what is alive of a run."""
