"""Float64 NumPy references of special functions and decompositions."""
