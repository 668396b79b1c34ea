"""Values of federated learning on unlike devices: fleets, selection policies, and answers about rounds."""
