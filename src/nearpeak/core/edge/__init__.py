"""Values of edge work: loaders, pipelines, streams, power modes and fleets of boards."""
