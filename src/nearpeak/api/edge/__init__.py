"""Plans of boards, loaders, pipelines, streams and fleets, wired to predictions and measurements."""
