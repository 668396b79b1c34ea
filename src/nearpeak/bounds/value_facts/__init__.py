"""Facts about values (format, range, structure), carried from definition to use by one rule per operator family."""
