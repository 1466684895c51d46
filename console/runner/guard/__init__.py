"""The guard as the runner has it: its configuration, its process, what it says."""
