"""Coefficients of kernel models: files, fits, audits and intervals."""
