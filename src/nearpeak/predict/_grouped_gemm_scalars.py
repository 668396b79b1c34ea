"""The scalars of the form of grouped products, in the order in which its kernel reads them."""

from nearpeak.predict._form import scalars

SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
    ("launch_s", 0.5e-6, 100e-6, 5e-6, "start and end of the kernels", "one token, small experts"),
    ("tensor_ratio", 0.15, 1.15, 0.7, "reached share of the product rate", "thousands of rows per expert"),
    ("dram_ratio", 0.3, 1.0, 0.8, "reached share of the memory rate", "few rows for each of many experts"),
    ("l2_bytes_per_clock", 6, 300, 64, "cache bandwidth per multiprocessor", "small tiles, short depths"),
    ("tile_start_s", 0.0, 10e-6, 1e-6, "filling and draining one tile", "many experts with small matrices"),
    ("step_s", 0.0, 600e-9, 100e-9, "latency of one step along k, 128 bytes deep", "one token"),
    ("saturation_ratio", 0.02, 1.0, 0.3,
     "share of the multiprocessors that saturates memory", "one or two experts with a few rows"),
    ("residency_ratio", 0.05, 3.0, 0.5,
     "share of the cache that stays resident", "weights around the size of the cache"),
    ("hidden_tail_ratio", 0.0, 0.97, 0.5,
     "share of the last partial wave that is hidden", "tiles just above whole waves"),
    ("routing_s", 0.0, 100e-6, 10e-6,
     "choosing experts, sorting and gathering tokens in a layer", "one token, small experts"),
    ("group_s", 0.0, 0.5e-6, 10e-9, "scheduling one group", "few tokens, hundreds of experts"),
    ("token_s", 0.0, 40e-9, 0.5e-9, "routing one token", "thousands of tokens, small experts"),
    ("pass_count", 0.0, 8.0, 1.0,
     "times that gathering, activation and scattering move the rows of a layer",
     "thousands of tokens, small experts"),
    ("clock_ratio", 0.0, 3.0, 0.1, "loss of clock under sustained products", "one layer from 50 us to 20 ms"),
    ("foreign_ratio", 0.0, 1.0, 0.0,
     "share of the rows of arriving tokens that kernels multiply although other devices hold their experts",
     "one layer with its experts on 1, 2, 8 and 32 devices, thousands of tokens"),
    ("foreign_pass_ratio", 0.0, 2.0, 0.0,
     "share of all tokens' rows on other devices that gathering, activation and scattering move nevertheless",
     "small experts on 32 devices, thousands of tokens"),
)  # fmt: skip
