"""Convolution kernel model: shapes, costs and coefficients."""
