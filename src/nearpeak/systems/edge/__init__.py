"""Boards at the edge: power modes, loaders and page caches, pipelines of stages, streams with deadlines."""
