"""The scalars of the form of collectives and copies: ranges, meaning, what pins each down."""

from nearpeak.predict._form import scalars

SCALARS = scalars(
    # name, least, largest, usual, what it stands for, which measurements pin it down
    ("launch_s", 0.5e-6, 40e-6, 4.5e-6, "start and end of one collective", "smallest messages of two ranks"),
    ("ll_hop_s", 0.05e-6, 10e-6, 0.9e-6, "one step of words that carry their own flags", "smallest messages"),
    ("ll128_hop_s", 0.05e-6, 20e-6, 0.9e-6, "one step of lines that carry their own flags", "16 KiB to 1 MiB"),
    ("ll128_s", 0.0, 20e-6, 2e-6, "setting up lines that carry their own flags", "16 KiB to 256 KiB"),
    ("simple_hop_s", 0.05e-6, 40e-6, 3e-6, "one step of blocks with separate flags", "4 to 16 MiB"),
    ("simple_s", 0.0, 120e-6, 12e-6, "filling the buffers of such blocks", "4 to 16 MiB"),
    ("ll_ratio", 0.002, 0.6, 0.06, "reached share of the link with flags in every word", "4 to 64 KiB"),
    ("ll128_ratio", 0.01, 1.0, 0.4, "reached share of the link with flags in every line", "64 KiB to 1 MiB"),
    ("simple_ratio", 0.02, 1.0, 0.72, "reached share of the link with separate flags", "64 MiB and more"),
    ("switch_bytes", 0.05e6, 30e6, 1.5e6, "bytes on the wire of two ranks from which blocks are used", "1 to 8 MiB"),
    ("pair_ratio", 0.3, 8.0, 0.9, "rate between two ranks against that of more", "two and four ranks"),
    ("gather_ratio", 0.4, 1.5, 0.9, "rate of gathering against that of adding up", "all_gather and all_reduce"),
    ("pair_gather_ratio", 0.4, 1.5, 0.9, "the same between two ranks, once more", "two ranks gathering"),
    ("own_s", 0.5e-6, 30e-6, 2.4e-6, "start and end of an all-reduce of one kernel over peer memory", "smallest bf16"),
    ("own_hop_s", 0.0, 8e-6, 0.15e-6, "one more rank of it", "smallest bf16, two and four ranks"),
    ("one_shot_ratio", 0.02, 1.0, 0.5, "reached share of the link when every rank reads all others", "64 KiB, bf16"),
    ("two_shot_ratio", 0.02, 1.0, 0.7, "reached share of the link in two phases", "1 to 8 MiB, bf16"),
    ("far_ratio", 0.02, 1.0, 0.6, "the same for what exceeds 8 MiB", "32 MiB and more, bf16"),
    ("two_shot_s", 0.0, 40e-6, 1.5e-6, "the barrier between the phases", "256 KiB to 2 MiB, bf16"),
    ("send_s", 1e-6, 60e-6, 8e-6, "start and end of sending to one peer", "smallest messages between two devices"),
    ("send_ratio", 0.05, 1.0, 0.75, "reached share of the link when sending", "16 MiB and more between two devices"),
    ("copy_s", 1e-6, 40e-6, 6e-6, "start and end of a copy to or from the host", "smallest copies"),
    ("copy_ratio", 0.2, 1.0, 0.85, "reached share of the host link from pinned memory", "copies of 16 MiB and more"),
)  # fmt: skip
