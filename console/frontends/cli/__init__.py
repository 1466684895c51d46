"""One module a group of commands: what is printed, nothing else."""
