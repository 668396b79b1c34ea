"""nearpeak: how near to the hardware's peak is this work, is it getting worse, and what is worth doing next?"""

# The folders of these names are loaded first, so that the functions below keep the names in the package.
import nearpeak.analyze
import nearpeak.capture
import nearpeak.predict  # noqa: F401
from nearpeak.achievable import predict
from nearpeak.api import analyze, bound, capture, case, case_table, provision, target
from nearpeak.core.analysis import Analysis
from nearpeak.core.bound import Bound, Policy
from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.core.workload import Workload
from nearpeak.errors import NearpeakError

__all__ = [
    "Analysis", "Bound", "Case", "NearpeakError", "Policy", "Target", "Workload",
    "analyze", "bound", "capture", "case", "case_table", "predict", "provision", "target",
]  # fmt: skip
