"""Serving of requests on many devices: step times of engines, scheduling, loads, memory and capacity."""
