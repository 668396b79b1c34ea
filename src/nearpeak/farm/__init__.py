"""The farm: jobs in the store, leases of devices, and what runs them on one machine or many."""
