"""The rollback without Python: rollback.sh, and the commands to type by hand."""
