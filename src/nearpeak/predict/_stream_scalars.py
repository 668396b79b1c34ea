"""The scalars of the form of operators that stream through memory: ranges, meaning, what pins each down."""

from nearpeak.predict._form import scalars

SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
    ("launch_s", 0.2e-6, 12e-6, 2e-6, "start and end of one kernel", "smallest kernels, timed on the device"),
    ("host_floor_s", 5e-6, 150e-6, 28e-6, "least time of one call seen from the host", "smallest calls"),
    ("host_gap_s", 1e-6, 100e-6, 16e-6, "what the host adds to a long kernel", "calls of two to ten times the floor"),
    ("grid_ramp_s", 0.0, 10e-6, 1e-6, "starting a full grid against starting one block", "20 KiB against 20 MiB"),
    ("read_ratio", 0.05, 1.0, 0.88, "reached share of the memory rate when reading", "sums of long tensors"),
    ("write_ratio", 0.05, 1.0, 0.85, "reached share of the memory rate when writing", "unary and binary functions"),
    ("write_residency_ratio", 0.0, 1.0, 0.3, "share of the cache that takes in what is written", "around its size"),
    ("vector_ratio", 0.02, 1.0, 0.4, "reached share of the rate of vector units", "many operations per byte"),
    ("special_flop_count", 1.0, 400.0, 20.0, "vector FLOP that one special function takes", "pow, tanh, gelu"),
    ("row_s", 0.0, 8e-6, 0.3e-6, "time that one row holds a multiprocessor beside its bytes", "many short rows"),
    ("row_bytes_per_clock", 0.5, 256.0, 32.0, "bytes of rows per clock and multiprocessor", "long rows in cache"),
    ("row_passes_count", 0.0, 3.0, 1.0, "times rows are read again", "rows beyond the cache"),
    ("row_residency_ratio", 0.02, 2.0, 0.4, "share of the cache that keeps rows between passes", "rows of 2 to 64 KiB"),
    ("unaligned_ratio", 0.3, 1.0, 0.9, "rate of rows that are no multiple of 16 bytes", "odd columns"),
    ("gated_ratio", 0.2, 1.0, 0.9, "rate of gated activations, whose operands lie in one tensor", "swiglu"),
    ("tensor_ratio", 0.02, 1.1, 0.6, "reached share of the product rate", "large products"),
)  # fmt: skip
