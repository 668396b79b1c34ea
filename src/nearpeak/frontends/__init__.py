"""Models, files and sweeps in; workloads out. One file per source."""
