"""Statistical tests and rules over measurements and analyses; values only, no device, file or database."""
