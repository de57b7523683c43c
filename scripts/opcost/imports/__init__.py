"""Records that others publish, as rows of a database: a module for each layout of files."""
