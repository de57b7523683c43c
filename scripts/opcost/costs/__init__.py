"""What a model costs by its operators, and whether that is what it takes."""
