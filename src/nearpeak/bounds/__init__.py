"""Lower bounds on time: arithmetic from work and target alone, without any measurement."""
