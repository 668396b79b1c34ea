"""Second-order optimizers on many ranks: work of each method, placement of inverses, exposed time."""
