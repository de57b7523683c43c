"""Models: definitions, torchvision's models, and building modules from definitions."""
