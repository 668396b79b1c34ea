"""Records: values of the core as plain data and back, by their types."""
