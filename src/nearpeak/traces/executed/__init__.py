"""What ran, beside theory: steps, queues and operators of a trace with their cases, bounds and expected times."""
