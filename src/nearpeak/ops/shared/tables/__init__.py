"""Tables of cases as columns."""
