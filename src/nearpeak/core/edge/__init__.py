"""Values of work at the edge: boards and power modes, training runs, loaders, pipelines, fleets and streams."""
