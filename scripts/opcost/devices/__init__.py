"""What work runs on: a processor or a GPU, what else uses it, and who may."""
