"""Values of profiler traces: events, timelines, findings."""
