"""What starts without a person: after a reboot, and by the clock."""
