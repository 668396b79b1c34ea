"""Values that say what is computed and on what: cases, work, tensors, workloads, targets."""
