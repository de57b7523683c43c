"""In which environment a target was measured so far, and what to do when it has changed."""
