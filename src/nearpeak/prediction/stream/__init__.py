"""Memory-streaming kernel model: traffic parts and coefficients."""
