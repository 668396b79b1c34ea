"""What the store remembers, judged: joins stored measurements with bounds, predictions and verdicts."""
