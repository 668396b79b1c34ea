"""The figures that the README quotes: one file per subject, run in full by `make bench`."""
