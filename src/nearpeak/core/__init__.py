"""Value types that everything else shares: frozen, slotted, keyword-only, standard library only."""
