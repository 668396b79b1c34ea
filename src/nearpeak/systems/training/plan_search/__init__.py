"""Search for the training plan that is fastest, cheapest or leaves most memory on a cluster."""
