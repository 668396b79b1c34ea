"""Detection on public series with labels, where a folder holds them, beside the detectors of the design's tables."""

from collections.abc import Iterator

import numpy as np

from benchmarks import _labelled
from benchmarks._figures import Figure
from benchmarks._series import Values, hits
from nearpeak.judgement.change_points import changes

FIGURES = ("tcpd_f1", "tcpd_covering", "talos_hits", "talos_others") if _labelled.folder() else ()
"""None of them is measured where no folder is named: what was not measured has no figure."""


def measure() -> Iterator[Figure]:
    """Yield the scores on both sets; nothing where no folder is named."""
    root = _labelled.folder()
    if root is None:
        print(f"  not measured: {_labelled.VARIABLE} names no folder")
        return
    marked = [(one, detected(np.array(one.values))) for one in _labelled.tcpd(root)]
    f1 = float(np.mean([_labelled.f1(one, found) for one, found in marked]))
    yield Figure(name="tcpd_f1", value=f1, unit="", bar=">= 0.77 on 31 series", passed=f1 >= 0.77)
    cover = float(np.mean([_labelled.covering(one, found) for one, found in marked]))
    yield Figure(name="tcpd_covering", value=cover, unit="", bar=">= 0.668 on 31 series", passed=cover >= 0.668)
    graphs = [(one, detected(np.array(one.values))) for one in _labelled.talos(root)]
    found = sum(hits(places, one.annotations[0]) for one, places in graphs)
    others = sum(len(places) for _, places in graphs) - found
    yield Figure(name="talos_hits", value=found, unit="of 12", bar="12 of 12", passed=found >= 12)
    yield Figure(name="talos_others", value=others, unit="", bar="<= 8 on 7 graphs", passed=others <= 8)


def detected(values: Values) -> list[int]:
    """Return the confirmed changes of a whole series, in windows of the detector's length that overlap by half."""
    y, found = _labelled.positive(values), []
    for start in range(0, max(1, y.size - 250), 250):
        for one in changes(y[start : start + 500]).confirmed:
            place = start + one.index
            inner = (start == 0 or one.index >= 125) and (start + 500 >= y.size or one.index < 375)
            if inner and all(abs(place - other) > 5 for other in found):
                found.append(place)
    return sorted(found)
