"""What an operator file is made of: rules of work, references, tolerances."""
