"""Files of kernel benchmarks (flashinfer-bench, SOL-ExecBench): definitions, workloads and traces, read and written."""
