"""Frontend for JAX functions."""
