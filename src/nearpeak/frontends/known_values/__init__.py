"""Tensor values that the program itself determines: masks, zeros, sizes."""
