"""A server of the Model Context Protocol: bounds, predictions and measurements as tools of language models."""
