"""Reports of conversion coverage."""
