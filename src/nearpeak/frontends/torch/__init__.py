"""Frontend for PyTorch modules, captured on fake tensors."""
