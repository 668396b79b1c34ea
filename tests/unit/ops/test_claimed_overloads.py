"""Every overload that the catalogue claims by name stands for an operator that PyTorch has."""

import torch

from nearpeak.ops import aten_matchers
from nearpeak.ops.shared.reference.elementwise_functions import FUNCTIONS, LISTED


def exists(name):
    namespace, packet, overload = name.split(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return found is not None and hasattr(found, overload)


def test_every_aten_name_of_an_elementwise_function_exists():
    claimed = {name for name in aten_matchers() if exists(name)}
    packets = {name.split(".")[1] for name in claimed}
    stated = {name for row in FUNCTIONS.values() for name in (*row.aten, *row.backward)}
    assert stated - packets == set()
    assert {f"_foreach_{name}" for name in LISTED} - packets == set()


def test_in_place_twins_and_overloads_belong_to_the_operator_of_the_plain_name():
    matchers = aten_matchers()
    for name in ("add.Tensor", "add_.Tensor", "mul_.Scalar", "relu_.default", "_foreach_addcdiv_.ScalarList"):
        assert exists(f"aten.{name}"), name
        assert matchers[f"aten.{name}"][0] == "elementwise"
