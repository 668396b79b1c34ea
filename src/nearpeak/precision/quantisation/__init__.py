"""Quantised models: executed number formats, speed, size, energy and accuracy at each precision."""
