"""Regression gate: policies in TOML, baselines from history, rules, and one exit code."""
