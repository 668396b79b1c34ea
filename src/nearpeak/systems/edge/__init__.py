"""Boards with power modes: transfer of times and powers between modes, choice of a mode, energy of a period."""
