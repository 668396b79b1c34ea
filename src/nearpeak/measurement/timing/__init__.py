"""Timing: clocks, warm-up, samples, interleaved rounds."""
