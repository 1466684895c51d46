"""The playbook format: steps, inputs, rules, thresholds, verdicts."""
