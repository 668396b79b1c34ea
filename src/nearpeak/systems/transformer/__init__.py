"""Kernels, parameters and collectives of transformer layers under any parallel layout."""
