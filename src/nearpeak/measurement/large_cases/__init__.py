"""Checks of cases too large for full validation."""
