"""The sealed plan for the day that Python is broken: rollback.sh, and commands to type by hand."""
