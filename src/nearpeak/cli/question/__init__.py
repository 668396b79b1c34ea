"""Commands that answer questions about workloads and devices without running a kernel."""
