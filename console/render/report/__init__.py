"""The report of a run: Markdown, with its charts."""
