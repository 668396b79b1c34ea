"""Terms of a bound, one file per resource."""
