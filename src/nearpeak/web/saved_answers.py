"""Dashboard views of saved JSON answers: precision tables, conversion pieces and tuning studies of a reports folder."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nearpeak.base.input_files import json_value, reading, text_of_file
from nearpeak.core.records.record_codec import Codec, Schema
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.reports.document import Document
from nearpeak.web.page_view import View, answer_view
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import plain_files

MOST_ANSWERS, HEAD_BYTES = 200, 400
"""Newest answers that a page lists, and first bytes of a file, which state its kind."""
JOURNAL = "nearpeak_study"
"""Kind of the journal of a study, which a search writes while it goes on."""
_KIND = re.compile(rb'"kind": ?"([\w ]{1,60})"|"(nearpeak_study)":')

_Answer = TypeVar("_Answer")
Reader = Callable[[Path, str], Document]
"""From a file and how messages call it, its answer as a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPage:
    """A page of saved answers of some kinds."""

    title: str
    """Title."""
    about: str
    """What it shows, in a sentence."""
    command: str
    """Command that writes an answer into the folder."""
    readers: Mapping[str, Reader]
    """Reader of each kind."""

    def build(self, site: Site, query: Query) -> View:
        """Return the chosen answer, by default the newest, or what is wrong with its file.

        Raises:
            NotFoundError: the folder holds no such answer.
        """
        kinds = {name: kind for name, kind in answer_kinds(site.setting.reports).items() if kind in self.readers}
        name = query.text("answer") or next(iter(kinds), "")
        document, error = None, ""
        if name:
            try:
                document = self._document(site, name, kinds)
            except NotFoundError:
                raise
            except NearpeakError as problem:
                error = str(problem)
        return answer_view(
            self.title, "saved_answer", document, names=tuple(kinds), name=name, error=error, about=self.about,
            command=self.command,
        )  # fmt: skip

    def _document(self, site: Site, name: str, kinds: Mapping[str, str]) -> Document:
        if name not in kinds or site.setting.reports is None:
            raise NotFoundError(f"answer {name[:80]}: is not in the folder of reports")
        path, read = site.setting.reports / name, self.readers[kinds[name]]
        with reading(name, "answer"):
            state = path.stat()
            mark = (state.st_mtime_ns, state.st_size)
            document: Document = site.remembered(f"answer {self.title} {name}", lambda: read(path, name), mark)
        return document


def answer_kinds(folder: Path | None) -> dict[str, str]:
    """Return the kind of each answer in a folder by the file's name, the newest first."""
    kinds = dict[str, str]()
    for path in plain_files(folder, ".json", ".jsonl")[:MOST_ANSWERS]:
        with path.open("rb") as file:
            match = _KIND.search(file.read(HEAD_BYTES))
        if match is not None:
            kinds[path.name] = (match[1] or match[2]).decode()
    return kinds


def reader_of(schema: Schema, answer: type[_Answer], document_of: Callable[[_Answer], Document]) -> Reader:
    """Return the reader of answers of one type: JSON of its fields, with kind and version."""
    codec = Codec()

    def read(path: Path, name: str) -> Document:
        with reading(name, "answer"):
            raw = json_value(text_of_file(path, name))
        value: _Answer = codec.value(schema.current(raw, name), answer, name)
        return document_of(value)

    return read
