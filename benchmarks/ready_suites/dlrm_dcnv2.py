"""DLRM with a deep and cross network of low rank, as MLPerf trains it on the multi-hot Criteo set.

Dimensions: MLCommons training reference, recommendation_v2/torchrec_dlrm, README: 26 tables of embeddings of 128, dense
13-512-256-128, over 1024-1024-512-256-1, 3 cross layers of rank 512; lookups per table as its multi-hot sizes. Tables
are capped at 1,000,000 rows here, which changes neither a shape of a product nor what is looked up.
Wang et al. 2021, arXiv:2008.13535, eq. 2.
"""

from itertools import pairwise

import torch
from torch import nn

ROWS = (
    40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14,
    40000000, 40000000, 40000000, 590152, 12973, 108, 36,
)  # fmt: skip
LOOKUPS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
CAP, WIDTH, DENSE, BATCH = 1_000_000, 128, 13, 2048


class Model(nn.Module):
    """Click prediction from dense features and 26 bags of identifiers."""

    def __init__(self):
        """Make tables, both stacks of products and the cross layers."""
        super().__init__()
        rows = [min(count, CAP) for count in ROWS]
        self.tables = nn.ModuleList([nn.EmbeddingBag(count, WIDTH, mode="sum") for count in rows])
        self.dense = stack((DENSE, 512, 256, WIDTH), last=nn.ReLU())
        features = WIDTH * (1 + len(ROWS))
        self.down = nn.ModuleList([nn.Linear(features, 512, bias=False) for _ in range(3)])
        self.up = nn.ModuleList([nn.Linear(512, features) for _ in range(3)])
        self.over = stack((features, 1024, 1024, 512, 256, 1), last=nn.Identity())

    def forward(self, dense, *bags):
        """Return one logit per sample."""
        looked_up = [table(bag) for table, bag in zip(self.tables, bags, strict=True)]
        first = torch.cat([self.dense(dense), *looked_up], dim=1)
        x = first
        for down, up in zip(self.down, self.up, strict=True):
            x = first * up(down(x)) + x
        return self.over(x)


def stack(widths, last):
    """Return linear layers with a ReLU between them."""
    layers = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


def get_inputs():
    """Return dense features and one bag of identifiers per table."""
    bags = [torch.zeros(BATCH, count, dtype=torch.int64) for count in LOOKUPS]
    return [torch.rand(BATCH, DENSE), *bags]


def get_init_inputs():
    """Return nothing: the model takes no arguments."""
    return []
