"""Reports of an analysis, one file per format."""
