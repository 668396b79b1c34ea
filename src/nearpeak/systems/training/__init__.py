"""Training on many devices: rank programs, time, memory, schedules, goodput and the search for a plan."""
