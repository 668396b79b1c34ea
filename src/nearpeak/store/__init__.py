"""History: measurements kept in a database, from which everything else is derived."""
