"""Extraction of operator tuples from models, and the files that list them."""
