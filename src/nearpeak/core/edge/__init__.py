"""Values of boards with power modes: modes, scoped power, samples, plans."""
