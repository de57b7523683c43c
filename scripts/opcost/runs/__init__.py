"""What `opcost run` measures: models and targets named on the command line, as a study."""
