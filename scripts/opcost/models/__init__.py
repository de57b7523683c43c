"""What a model is: definitions, those of torchvision, and how they become modules."""
