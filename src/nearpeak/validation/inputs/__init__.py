"""Inputs of validation: distributions, boundary and non-finite values."""
