"""Values of tensors that a program itself decides: masks, zeros, sizes."""
