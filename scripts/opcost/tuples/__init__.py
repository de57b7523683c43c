"""What a model executes: its operator tuples, and the files that list them."""
