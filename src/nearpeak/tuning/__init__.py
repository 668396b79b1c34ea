"""Search for the fastest correct configuration of a kernel among all legal ones."""
