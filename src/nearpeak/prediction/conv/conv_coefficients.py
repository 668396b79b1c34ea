"""Coefficients of the convolution model: ranges, meanings, and the measurements that identify them."""

from nearpeak.prediction.kernel_model import coefficient_ranges

PASSES = {"fprop": "output", "dgrad": "gradient of the input", "wgrad": "gradient of the weight"}
CLASSES = {
    "one_tap": "1 x 1, stride 1", "one_tap_strided": "1 x 1, stride 2", "nine_tap": "3 x 3, stride 1",
    "few_tap": "1 x 3 and the like", "many_tap": "5 x 5 and more, stride 1", "strided": "3 x 3 and more, stride 2",
    "grouped": "groups of several channels", "depthwise": "one channel per group",
}  # fmt: skip
"""Kernel shapes for which libraries have specialised code."""

COEFFICIENTS = coefficient_ranges(
    # name, least, largest, usual, meaning, measurements that identify it
    ("launch_s", 0.5e-6, 40e-6, 5e-6, "start and end of the kernels of one pass", "smallest convolutions"),
    ("host_floor_s", 5e-6, 300e-6, 60e-6, "least time of one call seen from the host", "smallest calls"),
    ("host_gap_s", 1e-6, 200e-6, 25e-6, "what the host adds to a long kernel", "calls of two to ten times the floor"),
    *(
        (f"{part}_{kind}_ratio", 0.005, 1.2, 0.5, f"reached share of the product rate, {what}, {kernel}", kernel)
        for part, what in PASSES.items()
        for kind, kernel in CLASSES.items()
    ),
    *(
        (f"{part}_winograd_ratio", 0.02, 1.1, 0.5, f"reached share of it in Winograd's algorithm, {what}", "3 x 3")
        for part, what in PASSES.items()
    ),
    ("wide_winograd_ratio", 0.02, 1.2, 0.5, "the same of its tiles of four outputs, products point by point", "3 x 3"),
    *(
        (f"{part}_direct_ratio", 0.002, 1.0, 0.1, f"reached share of the vector rate, {what}", "depthwise kernels")
        for part, what in PASSES.items()
    ),
    *(
        (f"{part}_split_s", 0.5e-6, 3e-3, 6e-6, f"adding up the parts of a split sum, {what}", "few outputs, long sums")
        for part, what in PASSES.items()
    ),
    ("unrolled_ratio", 0.005, 1.0, 0.4, "reached share of the product rate, images unrolled one by one", "odd kernels"),
    ("unrolled_image_s", 1e-6, 200e-6, 10e-6, "kernels of one image that is unrolled", "odd kernels, many images"),
    ("row_ratio", 1.0, 2.0, 1.1, "time of 1 x 1 kernels whose images are no multiple of four positions", "1 x 1"),
    *(
        (f"{part}_ragged_ratio", 1.0, 6.0, 1.1, f"time where positions are no multiple of 16, {what}", "odd images")
        for part, what in PASSES.items()
    ),
    ("winograd_edge_elements", 0.0, 120.0, 8.0, "the cost of small tiles in it", "3 x 3, few channels"),
    ("depth_elements", 0.0, 600.0, 40.0, "channels times taps that start and end of a tile cost", "few channels"),
    ("edge_elements", 0.0, 80.0, 8.0, "cost of small tiles, as a wider edge", "small images, one image"),
    ("tail_ratio", 0.0, 1.0, 0.5, "share of the last partial wave that nothing hides", "small images, small batches"),
    ("tile_start_s", 0.0, 20e-6, 2e-6, "filling and draining the pipeline of one wave", "few channels, many waves"),
    ("slow_clock_ratio", 1.0, 6.0, 1.0, "time of a short kernel that runs alone over that at full clock", "below 1 ms"),
    ("clock_rise_s", 50e-6, 5e-3, 0.5e-3, "length of a kernel for which the clock has risen halfway", ".1 to 10 ms"),
    ("dram_ratio", 0.1, 1.0, 0.7, "reached share of the memory rate", "1 x 1 with few channels"),
)  # fmt: skip
