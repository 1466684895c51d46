"""The console: its app, its terminal, and the watchers behind its screens."""
