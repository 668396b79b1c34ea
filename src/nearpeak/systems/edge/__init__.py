"""Boards, sensor streams, pipelines and fleets at the edge, composed of times that come in as functions."""
