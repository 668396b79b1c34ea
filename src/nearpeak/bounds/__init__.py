"""Pure arithmetic from work and target to bounds; it never sees a measurement."""
