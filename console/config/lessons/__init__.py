"""The registry of lessons: files, search, drafts, and which lessons apply to a step."""
