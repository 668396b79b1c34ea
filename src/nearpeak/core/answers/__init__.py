"""Values that answer a question: bounds, predictions, simulations, analyses, suites."""
