"""Commands that answer a question about work and devices."""
