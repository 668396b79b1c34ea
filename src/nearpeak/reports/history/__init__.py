"""Reports of series, regressions and rankings for the terminal, at most 80 columns wide."""
