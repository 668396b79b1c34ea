"""Executed steps of a trace: queues and operators with their cases, bounds and expected times."""
