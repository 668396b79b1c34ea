"""Dashboard page: tuning studies, finished or under way, with the best so far and its distance to the achievable."""

from nearpeak.core.tuning.study import STUDY, Study
from nearpeak.reports.tuning.study_report import document_of
from nearpeak.tuning.study_journal import stored_study
from nearpeak.web.pages import Page
from nearpeak.web.saved_answers import JOURNAL, AnswerPage, reader_of

ANSWERS = AnswerPage(
    title="Tuning", about="Searches for the fastest configuration: best so far, pruned, failed, distance to the goal.",
    command="nearpeak tune SPACE --study FOLDER/study.jsonl",
    readers={
        STUDY.kind: reader_of(STUDY, Study, document_of),
        JOURNAL: lambda path, name: document_of(stored_study(path, name)),
    },
)  # fmt: skip
PAGE = Page(name="tuning", path="/tuning", build=ANSWERS.build, title="Tuning", rank=8, is_static=False)
