"""What the screens know, without any drawing: watchers in threads, frozen snapshots."""
