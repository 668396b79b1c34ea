"""The measurement farm: a job queue in the store, device leases, and executors for one or many machines."""
