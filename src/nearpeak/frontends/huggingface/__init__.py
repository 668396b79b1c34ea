"""Frontend for Hugging Face models: published dimensions, and inputs made by recipes."""
