"""Reports of quantised models."""
