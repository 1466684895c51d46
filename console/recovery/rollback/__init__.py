"""The rollback: its sealed plan, its stages, the standby process, and rollback.sh."""
