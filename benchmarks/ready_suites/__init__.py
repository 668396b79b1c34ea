"""Recipes of the ready-made suites; `python -m benchmarks.ready_suites [name …]` writes them into the package."""
