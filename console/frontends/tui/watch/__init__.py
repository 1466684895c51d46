"""What the screens know, without drawing: watchers in threads, frozen snapshots."""
