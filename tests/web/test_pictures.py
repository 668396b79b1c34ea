"""The pictures of the documents: made from the dashboard as it is, when NEARPEAK_PICTURES names their folder."""

import os
from pathlib import Path

import pytest
from house_rules import ROOT

FOLDER = ROOT / "docs" / "images"
SHOTS = {
    "dashboard_triage": ("/", 1180, 640, "light"), "dashboard_series": ("/series/1", 1180, 760, "light"),
    "dashboard_phone": ("/", 390, 720, "dark"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SHOTS))
def test_pictures_can_be_made_and_those_kept_are_small(watched, address, tmp_path, name):
    path, width, height, theme = SHOTS[name]
    watched.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    watched.page.set_viewport_size({"width": width, "height": height})
    page = watched.open(address + path)
    page.wait_for_selector(".u-wrap")
    place = Path(os.environ.get("NEARPEAK_PICTURES", tmp_path)) / f"{name}.png"
    assert len(page.screenshot(path=place)) > 10_000
    assert (FOLDER / f"{name}.png").stat().st_size < 200_000


def test_all_pictures_of_the_dashboard_take_less_than_600_kb():
    assert sum(one.stat().st_size for one in FOLDER.glob("dashboard_*.png")) < 600_000
