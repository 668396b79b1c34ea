"""How the tables came to be: one file per change, in order; what they declare together is the schema."""
