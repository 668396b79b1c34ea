"""The scalars of the form of matrix products: what a device's measurements fit, and within which range."""

from nearpeak.predict._form import scalars

SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
    ("launch_s", 0.2e-6, 60e-6, 1.8e-6, "start and end of one kernel", "smallest kernels"),
    ("tensor_ratio", 0.25, 1.15, 0.9, "reached share of the product rate", "large products with many waves"),
    ("dram_ratio", 0.3, 1.0, 0.87,
     "reached share of the memory rate when reading", "m <= 16 with weights beyond the cache"),
    ("store_ratio", 0.1, 1.0, 0.8, "reached share of the memory rate when writing", "large m and n with k <= 256"),
    ("l2_bytes_per_clock", 6, 300, 64, "cache bandwidth per multiprocessor", "weights inside the cache, small tiles"),
    ("tile_start_s", 0.0, 8e-6, 0.5e-6,
     "filling and draining the pipeline of one wave", "several waves with k from 256 to 1024"),
    ("edge_elements", 0.0, 80.0, 5.0, "cost of small tiles, as a wider edge", "products too small for large tiles"),
    ("split_s", 0.1e-6, 200e-6, 2e-6, "adding up the parts of a split sum", "small m and n with k >= 16384"),
    ("saturation_ratio", 0.02, 1.0, 0.3, "share of the multiprocessors that saturates memory", "few tiles with long k"),
    ("residency_ratio", 0.05, 3.0, 0.5,
     "share of the cache that stays resident", "weights around the size of the cache"),
    ("hidden_tail_ratio", 0.0, 0.97, 0.5,
     "share of the last partial wave that persistent kernels hide", "tiles just above whole waves"),
    ("clock_ratio", 0.0, 3.0, 0.2, "loss of clock under sustained products", "one shape from 50 us to 20 ms"),
    ("clock_s", 0.05e-3, 20e-3, 1e-3, "time after which the clock falls", "one shape from 50 us to 20 ms"),
    ("step_s", 0.0, 400e-9, 100e-9, "latency of one step along k, 128 bytes deep", "few tiles with long k"),
    ("exposed_store_ratio", 0.0, 8.0, 2.0,
     "share of the store of one wave that nothing hides", "one wave with small k"),
    ("grid_ramp_s", 0.0, 6e-6, 0.8e-6, "starting a full grid against starting one tile", "one tile against one wave"),
    ("quantise_s", 0.0, 20e-6, 2e-6, "start and end of quantising the input", "smallest products with quantised input"),
    ("quantise_ramp_s", 0.0, 30e-6, 3e-6,
     "quantising a full grid of rows against a few", "m from 512 to 4096 with small n"),
    ("quantise_passes_count", 0.0, 30.0, 2.0,
     "times the input crosses the cache while it is quantised", "large m and k, small n"),
)  # fmt: skip
