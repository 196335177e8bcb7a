"""Papers are declared once, and everything that cites one finds it."""

import re

import pytest

from bitfront.cli import main
from bitfront.search.config.sections.paper import PaperSpec
from bitfront.search.tracking.notes import paper_lines
from bitfront.spaces.ready_made import searches
from bitfront.trainables.methods import METHODS
from bitfront.trainables.papers import PAPERS, citation, paper_of
from bitfront.trainables.selectors import SELECTORS

ROW = {"table": "Table 1", "dataset": "d", "model": "m", "rows": [{"label": "a"}]}


@pytest.mark.parametrize("name", PAPERS.names())
def test_a_paper_says_who_what_where_and_when(name):
    paper = PAPERS.get(name)
    assert paper.title
    assert paper.authors
    assert paper.short
    assert 2010 < paper.year < 2030
    assert re.fullmatch(r"https://\S+", paper.link)
    arxiv = re.fullmatch(r"https://arxiv\.org/abs/(\d\d)(\d\d)\.\d{4,5}", paper.link)
    if arxiv:  # put there in the year it was published, or up to two before
        assert 2000 + int(arxiv[1]) - 1 <= paper.year <= 2000 + int(arxiv[1]) + 2
        assert 1 <= int(arxiv[2]) <= 12


def test_every_method_and_selector_cites_one_that_is_declared():
    for name, method in METHODS.items():
        assert method.paper in PAPERS, name
    for name, selector in SELECTORS.items():
        assert not selector.paper or selector.paper in PAPERS, name
    assert SELECTORS.get("hawq").describe()["link"] == "https://arxiv.org/abs/1911.03852"


def test_the_papers_of_ready_made_searches_are_known():
    for name, path in searches().items():
        found = re.search(r"^  title: (.+?)\n  \w", path.read_text(), re.M | re.S)
        if found:
            assert paper_of(found[1]) is not None, name


def test_a_paper_is_found_by_key_by_title_or_not_at_all():
    known = PAPERS.get("bnew")
    assert paper_of("bnew") is known
    assert paper_of("Training binarized neural networks the easy way (BNEW), BMVC 2022") is known
    assert paper_of("A paper, 2023") is None
    assert citation("A paper, 2023") == "A paper, 2023"
    by_title = PaperSpec.model_validate({"title": f"{known.title}, BMVC 2022", **ROW})
    by_key = PaperSpec.model_validate({"title": "bnew", **ROW})
    assert by_title.citation == by_key.citation == known.text
    assert by_key.link == known.link
    assert PaperSpec.model_validate({"title": "A paper, 2023", **ROW}).link == ""


def test_listings_and_mlflow_show_it(capsys, make_space):
    assert main(["methods", "bop"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "bop: K. Helwegen et al.: Latent Weights Do Not Exist" in shown
    assert "https://arxiv.org/abs/1906.02107" in shown
    config, _ = make_space("space={method: [bop, fp], plan: W}")
    assert paper_lines(config)[0] == (
        "Methods: `bop`: [Bop, NeurIPS 2019](https://arxiv.org/abs/1906.02107)."
    )
