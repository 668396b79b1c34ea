"""Networks that denoise images, which transformers does not have, by their published structure."""
