"""The float64 oracle and its error bounds."""
