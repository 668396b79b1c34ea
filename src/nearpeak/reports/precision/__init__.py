"""Reports on number formats: autocast, executed precision and the table of precisions."""
