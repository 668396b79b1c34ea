"""How far predictions are from public measurements: corpus reader, names, scores, and the separate fitting command."""
