"""The scalars of the form of matrix products: what a device's measurements fit, and within which range."""

from nearpeak.predict._form import scalars

SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
    ("launch_s", 0.2e-6, 10e-6, 1.8e-6, "start and end of one kernel", "smallest kernels"),
    ("tensor_ratio", 0.25, 1.15, 0.9, "reached share of the product rate", "large products with many waves"),
    ("dram_ratio", 0.3, 1.0, 0.87,
     "reached share of the memory rate when reading", "m <= 16 with weights beyond the cache"),
    ("store_ratio", 0.1, 1.0, 0.8, "reached share of the memory rate when writing", "large m and n with k <= 256"),
    ("balanced_elements", 30, 400, 110,
     "edge of the square tile that the cache feeds as fast as products use it", "small tiles"),
    ("tile_start_s", 0.0, 8e-6, 0.5e-6,
     "filling and draining the pipeline of one wave", "several waves with k from 256 to 1024"),
    ("split_s", 0.1e-6, 200e-6, 2e-6, "adding up the parts of a split sum", "small m and n with k >= 16384"),
    ("residency_ratio", 0.05, 3.0, 0.5,
     "share of the cache that stays resident", "weights around the size of the cache"),
    ("clock_ratio", 0.0, 3.0, 0.2, "loss of clock under sustained products", "one shape from 50 us to 20 ms"),
    ("step_s", 0.0, 400e-9, 100e-9, "latency of one step along k, 128 bytes deep", "few tiles with long k"),
    ("exposed_store_ratio", 0.0, 8.0, 2.0,
     "share of the store of one wave that nothing hides", "one wave with small k"),
    ("grid_ramp_s", 0.0, 6e-6, 0.8e-6, "starting a full grid against starting one tile", "one tile against one wave"),
    ("quantise_s", 0.0, 20e-6, 2e-6, "start and end of quantising the input", "smallest products with quantised input"),
    ("quantise_row_s", 0.0, 2e-6, 0.1e-6, "quantising one row on a multiprocessor", "m >= 4096 with small n and k"),
    ("quantise_ramp_s", 0.0, 10e-6, 1e-6,
     "quantising rows on all multiprocessors against a few", "m from 64 to 1024 with small n"),
    ("quantise_passes_count", 0.0, 30.0, 2.0,
     "times the input crosses the cache while it is quantised", "large m and k, small n"),
    ("pad_s", 0.0, 20e-6, 2e-6, "padding operands of four bits to whole blocks", "n or k below 128"),
    ("host_s", 0.0, 80e-6, 30e-6, "launch by the host, where it is timed", "smallest kernels timed by the host"),
    ("far_ratio", 0.0, 10.0, 0.0,
     "slow-down of loads beyond the reach of address translation", "unaligned operands above 256 MB"),
    ("unaligned_ratio", 0.0, 4.0, 0.0,
     "slow-down of loads of rows that start anywhere, element by element", "unaligned operands in cache"),
    ("serial_s", 0.0, 20e-9, 4e-9,
     "one element along k where a library neither splits nor overlaps the smallest products",
     "m n k below 2^21, k from 1024 to 8192"),
)  # fmt: skip
