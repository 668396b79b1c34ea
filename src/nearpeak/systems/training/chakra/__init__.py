"""Chakra execution traces of training plans, for network simulators and for nearpeak's own reader."""
