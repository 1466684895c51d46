"""What old trials left on the disks, and its removal by a person's word."""
