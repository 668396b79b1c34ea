"""Cases and roofs on silicon."""
