"""What changed between two databases, beyond its uncertainty: pairs of rows, and what they show."""
