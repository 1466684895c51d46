"""The stages of a rollback, from ending the runner to a completion of the baseline."""
