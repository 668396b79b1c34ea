"""Mixed precision: expected gain and executed formats."""
