"""The rollback: its sealed plan, its stages, the process that waits for it, and rollback.sh."""
