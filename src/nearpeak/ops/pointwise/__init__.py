"""Element-wise operators, conversions and random numbers."""
