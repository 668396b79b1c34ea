"""The device report: roofs, bounds, predictions, every operator, the timer and the sensors of one device."""
