"""The pictures of the pages are those of the quickstart of today. All of them are compared by
`python -m website.pictures --check`, which needs a browser; here are those that need none."""

import json
import re
import shutil

import pytest
import yaml
from PIL import Image

from bitfront.cli import main
from bitfront.search.config.load import load_text
from bitfront.spaces.ready_made import searches
from website import pictures
from website.sources import ROOT

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("home")
    shutil.copytree(pictures.KEPT, place / pictures.SEARCH)
    return place


def test_the_search_that_is_kept_is_the_quickstart_as_it_ships():
    shipped, _ = load_text(searches()[pictures.SEARCH].read_text(), pictures.SEARCH)
    kept = yaml.safe_load((pictures.KEPT / "search.yaml").read_text())
    assert kept == yaml.safe_load(shipped.dump())


def test_numbers_of_the_readme_and_of_the_tutorial_are_those_of_that_search(home, capsys):
    assert main(["front", pictures.SEARCH, "--home", str(home), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    found = {(f"{100 * p['val_accuracy']:.1f}", f"{p['flops_pct']:.0f}"): p for p in points}
    number = r"([\d.]+) % at (\d+) %"
    told = re.search(rf"it is\s{number} of the FLOPs and {number}", README)
    assert told is not None
    one, at_one, two, at_two = told.groups()
    assert {(one, at_one), (two, at_two)} <= set(found)
    assert f"**{one} %** at {at_one} % of the FLOPs" in README
    cheapest = min(points, key=lambda p: p["flops_pct"])
    assert set(cheapest["plan"]) == {"B"}
    assert f"reaches {100 * cheapest['val_accuracy']:.0f} % accuracy" in README
    assert f"all layers binary have {100 * cheapest['val_accuracy']:.0f} %" in README
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert f"`front {len(points)}`" in tutorial
    plan, percent = re.findall(r"^\| `([FWB ]+|[\d.]+ % flops)` \|", tutorial, re.MULTILINE)[:2]
    shown = {(p["plan"], f"{p['flops_pct']:.1f} % flops") for p in points}
    assert (plan.replace(" ", ""), percent) in shown


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_figures_of_the_pages_are_those_of_that_search(home, tmp_path):
    (tmp_path / "pictures").mkdir()
    pictures.drawn(home, tmp_path)
    shares = {
        str(path.relative_to(tmp_path)): pictures.unlike(
            path, pictures.DOCS / path.relative_to(tmp_path)
        )
        for path in tmp_path.rglob("*.png")
    }
    assert len(shares) == 3
    assert max(shares.values()) <= pictures.SHARE, shares


def test_every_picture_of_the_pages_is_drawn_by_the_script():
    source = (ROOT / "website" / "pictures.py").read_text()
    for path in (*pictures.DOCS.glob("*.png"), *(pictures.DOCS / "pictures").glob("*.png")):
        assert path.name in source, path


def test_another_picture_is_noticed(tmp_path):
    with Image.open(pictures.DOCS / "front.png") as front:
        front.convert("RGB").transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "a.png")
    assert pictures.unlike(tmp_path / "a.png", pictures.DOCS / "front.png") > pictures.SHARE
