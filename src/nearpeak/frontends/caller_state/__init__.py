"""Loan of a caller's modules, functions and inputs to a capture, after which everything is as it was."""
