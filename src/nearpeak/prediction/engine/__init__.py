"""Time of the kernels that an inference engine builds for a small board, fitted on published figures."""
