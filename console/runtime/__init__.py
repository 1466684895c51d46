"""Starting, probing and ending model servers."""
