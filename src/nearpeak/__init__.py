"""nearpeak: how near to the hardware's peak is this work, is it getting worse, and what is worth doing next?"""

# The folders of these names are loaded first, so that the functions below keep the names in the package.
import nearpeak.frontends
import nearpeak.judgement
import nearpeak.prediction  # noqa: F401
from nearpeak.api.achievable_time import predict
from nearpeak.api.questions import analyze, bound, capture, case, case_table, provision, target
from nearpeak.core.answers.analysis import Analysis
from nearpeak.core.answers.bound import Bound, Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError

__all__ = [
    "Analysis", "Bound", "Case", "NearpeakError", "Policy", "Target", "Workload",
    "analyze", "bound", "capture", "case", "case_table", "predict", "provision", "target",
]  # fmt: skip
