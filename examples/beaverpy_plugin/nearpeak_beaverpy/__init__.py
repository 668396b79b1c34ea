"""The NumPy operators of the public package beaverpy (MIT) as a nearpeak runner and as a set of probes."""
