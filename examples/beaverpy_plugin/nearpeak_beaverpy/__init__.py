"""The NumPy operators of the public package beaverpy (MIT) as a runner of nearpeak and as a set of probes."""
