"""Static export of the dashboard as a folder of files; the same store gives the same bytes."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store import Store
from nearpeak.web.page_renderer import ASSETS, Frame, asset, page_html, table_csv, table_json
from nearpeak.web.pages import Page, pages, paths
from nearpeak.web.pages.workload import named
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Setting, Site, file_of
from nearpeak.web.workload_reports import workload_report

_SHORT = ("series",)
"""Pages that show the newest rows of long tables; their exports hold all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Counts of a static export."""

    page_count: int
    """Pages."""
    file_count: int
    """Files."""
    size_bytes: int
    """Bytes of all files."""


def export_site(store: Store, folder: Path) -> Exported:
    """Write the dashboard of a store into a folder, which appears whole.

    Raises:
        SpecError: the folder is there already, or what it lies in is not.
    """
    if folder.exists():
        raise SpecError(f"{folder}: exists already; a site is written into a new folder")
    if not folder.resolve().parent.is_dir():
        raise SpecError(f"{folder}: its folder does not exist")
    site, page_count = Site(store, Setting(is_static=True, paths=paths())), 0
    with tempfile.TemporaryDirectory(dir=folder.resolve().parent, prefix=".nearpeak-") as place:
        part = Path(place) / "site"
        part.mkdir()
        for name in ASSETS:
            _write(part / "static" / name, asset(name))
        for page in pages():
            for values in page.everywhere(site) if page.is_static else ():
                for name, text in _files(site, page, dict(values)):
                    _write(part / name, text.encode())
                page_count += 1
        files = [file for file in part.rglob("*") if file.is_file()]
        exported = Exported(
            page_count=page_count, file_count=len(files), size_bytes=sum(file.stat().st_size for file in files)
        )
        part.replace(folder)
    return exported


def _files(site: Site, page: Page, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the files of a page: itself, each of its tables twice, and its report where it has one."""
    path = page.path
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    name = file_of(path)
    whole = page.build(site, Query(path=values, is_whole=True))
    view = page.build(site, Query(path=values)) if page.name in _SHORT else whole
    yield name, page_html(view, Frame(site=site, page=page.name, path=path))
    for table in whole.tables:
        if table.rows:
            stem = name.removesuffix("html")
            yield f"{stem}{table.name}.csv", table_csv(table)
            yield f"{stem}{table.name}.json", table_json(table)
    if page.name == "workload":
        try:
            yield name.removesuffix("html") + "report.html", workload_report(*named(site, values["workload"]))
        except NotFoundError:
            return


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
