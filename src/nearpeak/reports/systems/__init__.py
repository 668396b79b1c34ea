"""Reports of plans: training jobs on a cluster, and services."""
