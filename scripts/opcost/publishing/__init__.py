"""Publishing: databases as a folder for Hugging Face or Zenodo, without what identifies anybody."""
