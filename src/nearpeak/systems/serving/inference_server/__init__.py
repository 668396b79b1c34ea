"""Inference servers of the kind of Triton: model configurations, dynamic batching, instances and ensembles."""
