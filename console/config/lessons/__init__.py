"""The registry of lessons: files, search, drafts, and what bears on a step."""
