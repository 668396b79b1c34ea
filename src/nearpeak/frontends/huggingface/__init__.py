"""Frontend for Hugging Face models: published dimensions and input recipes."""
