"""Timeline arithmetic over trace columns."""
