"""Times and bounds of collectives over the tiers of a fabric."""
