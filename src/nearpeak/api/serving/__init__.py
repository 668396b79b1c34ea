"""Plans of services and of retrieval, wired to predicted kernels."""
