"""Files of kernel benchmarks (flashinfer-bench, SOL-ExecBench), result files and power logs, read and written."""
