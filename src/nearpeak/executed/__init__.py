"""What ran: traces beside theory. Steps, queues and operators of a trace with their cases, bounds and expected times."""
