"""Systems at the edge: boards and power modes, data loaders and page caches, pipelines, fleets and streams."""
