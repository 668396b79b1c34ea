"""Values of boards, sensor streams, pipelines and fleets at the edge."""
