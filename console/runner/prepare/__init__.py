"""What stands between a playbook and its first step: baseline, plan, seal."""
