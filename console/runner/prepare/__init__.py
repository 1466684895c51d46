"""What happens between reading a playbook and its first step: baseline check, plan, seal."""
