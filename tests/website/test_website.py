"""The documentation site: links, equations, drawings. `.ci/run` builds all of it, strictly."""

import math

import pytest

from bitfront.trainables.methods import METHODS
from bitfront.trainables.methods.quantizer_pair import QuantizerPair
from website import drawings, equations, links, measured
from website.sources import ROOT, as_page, linked_files

PAIRS = [name for name in METHODS if issubclass(METHODS.get(name), QuantizerPair)]


def test_links_between_files_lead_to_their_places_on_the_site():
    text = "[a](../benchmarks/README.md#results) [b](yaml.md) [c](../cluster.yaml) [d](https://e.f)"
    assert as_page(text, "docs/own.md", "own.md") == (
        "[a](benchmarks.md#results) [b](yaml.md) [c](files/cluster.yaml) [d](https://e.f)"
    )
    assert as_page("[a](docs/own.md)", "README.md", "index.md") == "[a](own.md)"
    assert as_page("[a](../yaml.md)", "docs/results/x.md", "results/x.md") == "[a](../yaml.md)"
    assert linked_files(text, "docs/own.md") == {"cluster.yaml"}


def test_a_link_without_a_file_or_an_anchor_is_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h2 id="x"></h2><a href="#x"></a><a href="#y"></a><img src="no.png">'
        '<a href="sub/b.html#z"></a><a href="sub/b.html#w"></a><a href="https://c.d"></a>'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.html").write_text('<a name="z" href="../a.html"></a>')
    assert links.dead(tmp_path) == ["a.html: #y", "a.html: no.png", "a.html: sub/b.html#w"]


def test_code_stays_as_it_is():
    text = "| `a \\| b` | c \\| d |\n\n```python\nx[0] [1](docs/own.md)\n```\n"
    assert as_page(text, "README.md", "index.md") == text.replace("a \\| b", "a | b")


def test_every_method_has_a_note_and_no_note_is_left_over():
    assert set(equations.notes()) == set(METHODS)


def test_every_method_shows_an_equation():
    for name in METHODS:
        assert equations.latex(name), name


@pytest.mark.parametrize("name", [name for name in PAIRS if METHODS.get(name).family == "pcpp"])
def test_the_equations_on_the_pages_are_those_that_train(name):
    """At every value the drawing shows, apart from jumps: what is at them, docs/methods.md says."""
    values, forward, backward = drawings.curves_of(name)
    latents = drawings.LATENTS.tolist()
    for side, lines in (("forward", forward), ("backward", backward)):
        if side not in equations.notes()[name]:
            continue
        for value, line in zip(values, lines, strict=True):
            function = equations.evaluated(name, side, value)
            for w, drawn in list(zip(latents, line, strict=True))[3::7]:
                if w not in (-1, 0, 1):
                    assert math.isclose(function(w), drawn, rel_tol=2e-3, abs_tol=2e-4), (value, w)


@pytest.mark.parametrize("name", ["pmf", "lr-net"])
def test_the_backward_curve_of_a_mean_weight_is_its_slope(name):
    for w in (-1.3, -0.2, 0.0, 0.4, 1.9):
        mean = equations.curve(name, "forward", 3)
        slope = (mean(w + 1e-6) - mean(w - 1e-6)) / 2e-6
        assert math.isclose(equations.curve(name, "backward", 3)(w), slope, rel_tol=1e-6)


def test_every_method_with_binary_weights_of_one_latent_is_drawn():
    drawn = {name for name in METHODS if drawings.quantizer(name, None)}
    assert drawn == {*PAIRS, *(name for name in METHODS if "curve" in equations.notes()[name])}
    assert len(drawn) == 23


def test_a_wrong_equation_is_noticed(monkeypatch):
    wrong = {**equations.notes()["bnn"], "backward": "Piecewise((1, Abs(w) <= 2), (0, True))"}
    monkeypatch.setitem(equations.notes(), "bnn", wrong)
    with pytest.raises(AssertionError):
        test_the_equations_on_the_pages_are_those_that_train("bnn")


def test_what_was_measured_is_read_from_the_results():
    (fine_tuned, _) = measured.accuracies("bnn++")
    assert "**70.8 %**" in fine_tuned
    assert "fp 91.73" in fine_tuned[2]
    assert [
        "A step of cresnet20 over one in full precision, CPU time",
        "W 1.11, B 1.508, A 1.635",
    ] in (list(measured.times("bnn++")))


def test_the_drawing_of_the_concepts_is_that_of_its_script():
    assert (ROOT / "docs" / "pictures" / "concepts.svg").read_text() == drawings.concepts()


def test_every_arrow_of_it_joins_two_boxes():
    assert {name for start, end, _ in drawings.ARROWS for name in (start, end)} == set(
        drawings.BOXES
    )
