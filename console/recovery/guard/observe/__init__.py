"""What the guard observes of the machine and of a run: memory, GPUs, disks, logs and live
targets."""
