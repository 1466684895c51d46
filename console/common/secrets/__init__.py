"""What is a secret: the names, fields, forms and sentences by which one is known in a text."""
