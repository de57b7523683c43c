"""Import of published records as rows of a database, with a module for each layout."""
