"""Runs that wait for an allocation of Slurm's, and hold it until the baseline serves again."""
