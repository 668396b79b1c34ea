"""Lowering of captured steps to the calls that an inference engine runs."""
