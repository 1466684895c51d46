"""The commands that describe this machine's baseline: `init` and `adopt`."""
