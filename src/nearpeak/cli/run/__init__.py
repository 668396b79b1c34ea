"""Commands that run kernels or tools on this machine."""
