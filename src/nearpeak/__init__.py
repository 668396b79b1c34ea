"""nearpeak: how near to the hardware's peak is this work, is it getting worse, and what is worth doing next?"""

from nearpeak.api.achievable_time import explain, predict, simulate
from nearpeak.api.edge.pipeline_plan import stage as stage  # marks parts of programs; it answers no question
from nearpeak.api.measured_analysis import compare, judge, measure, validate
from nearpeak.api.questions import analyze, bound, capture, case, case_table, provision, target
from nearpeak.core.answers.analysis import Analysis
from nearpeak.core.answers.bound import Bound, Policy
from nearpeak.core.answers.explanation import Explanation
from nearpeak.core.answers.notebook_display import register_view
from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.answers.provision import Provision
from nearpeak.core.answers.simulation import Run
from nearpeak.core.answers.step_prediction import StepPrediction
from nearpeak.core.runs.measurement import Measurement
from nearpeak.core.runs.paired_rounds import Judgement, PairedComparison
from nearpeak.core.runs.validation import Validation
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError

__all__ = [
    "Analysis", "Bound", "Case", "Explanation", "Judgement", "Measurement", "NearpeakError", "PairedComparison",
    "Policy", "Prediction", "Provision", "Run", "StepPrediction", "Target", "Validation", "Workload",
    "analyze", "bound", "capture", "case", "case_table", "compare", "explain", "judge", "measure", "predict",
    "provision", "simulate", "target", "validate",
]  # fmt: skip


def _notebook_view(answer: object) -> str:
    """Return what a notebook shows of an answer; the package alone knows both values and reports."""
    from nearpeak.reports.document.notebook import html_of

    return html_of(answer)


register_view(_notebook_view)
