"""Import of published records as rows of a database."""
