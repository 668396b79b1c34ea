"""Convolutions and their window layouts."""
