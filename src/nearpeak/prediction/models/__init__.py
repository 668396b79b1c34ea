"""One file per family of operators; each ends in `FORM`."""
