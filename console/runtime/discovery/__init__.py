"""Finding the model servers that run on this machine: host processes, units, containers."""
