"""Kernel models, one file per family of operators, each of which defines `KERNEL_MODEL`."""
