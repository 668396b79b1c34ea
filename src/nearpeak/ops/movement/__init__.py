"""Operators that move, select or communicate elements."""
