"""Analyses over the store: joins stored measurements with bounds, predictions and statistical verdicts."""
