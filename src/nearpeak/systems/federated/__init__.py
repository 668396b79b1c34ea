"""Clock of federated rounds on unlike devices, with small models trained for real along it."""
