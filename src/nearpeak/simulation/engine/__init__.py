"""The discrete-event engine of the simulator, in integer picoseconds."""
