"""What the guard sees: memory, GPUs, disks, logs and what is alive of a run."""
