"""Goodput under failures: closed forms of checkpoint intervals and a simulation of elastic policies."""
