"""Plans of training on many devices, wired to predicted kernels and collectives."""
