"""Value types of all other packages: frozen, slotted, keyword-only, standard library only."""
