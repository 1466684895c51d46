"""What a server answers: one real completion, and whether its text is an answer at all."""
