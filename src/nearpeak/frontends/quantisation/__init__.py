"""Captured 16-bit steps with weights and caches in the narrower formats in which servers store them."""
