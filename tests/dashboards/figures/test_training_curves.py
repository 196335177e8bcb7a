"""Curves on training and validation part: the mean over seeds of the setting with most of them."""

from types import SimpleNamespace

import pytest

from bitfront.dashboards.figures.trials.training import mean_curve, method_curves, training_image
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import Axis, TrialView

QUALITY = Axis("val_accuracy", "accuracy, %", maximize=True, percent=True, short="accuracy")


def trial(method, seed, curve, train=(), state=TrialState.COMPLETE, **settings):
    return TrialView(
        id=f"{method}{seed}{settings}", number=0, state=state, method=method, plan="W", network="",
        seed=seed, params={}, values=settings.pop("values", {}), epochs=len(curve),
        curve=list(enumerate(curve, 1)), train_curve=list(enumerate(train, 1)),
        settings={key: str(value) for key, value in settings.items()},
    )  # fmt: skip


@pytest.fixture
def view():
    trials = [
        trial("bop", 0, [0.2, 0.4], [0.3, 0.5], lr=1),
        trial("bop", 1, [0.4, 0.8], [0.5, 0.9], lr=1),
        trial("bop", 0, [0.9, 0.95], lr=2),  # better, but of one seed
        trial("fp", 0, [0.5, 0.6, 0.7], [0.6, 0.7, 0.8], values={"best_epoch": 2}),
        trial("pmf", 0, [0.1], state=TrialState.FAILED),
    ]
    return SimpleNamespace(trials=trials, quality=QUALITY, name="s", title="t")


def test_a_line_is_the_mean_over_seeds_of_one_setting(view):
    bop, fp = method_curves(view)
    assert (bop.method, bop.seeds) == ("bop", 2)
    assert bop.validation.means == pytest.approx([0.3, 0.6])
    assert bop.validation.spreads == pytest.approx([0.2 / 2**0.5, 0.4 / 2**0.5])
    assert bop.train.means == pytest.approx([0.4, 0.7])
    # The last value is that of the best epoch, 2, and no part of the curve.
    assert fp.validation.epochs == [1, 2]
    assert fp.train.means == pytest.approx([0.6, 0.7])


def test_only_epochs_that_all_seeds_have_count():
    assert mean_curve([[(1, 0.5), (2, 0.6)], [(2, 0.8)]]).epochs == [2]
    assert mean_curve([]).epochs == []


def test_the_picture_is_drawn(view, tmp_path):
    path = training_image(view, "title", tmp_path / "curves.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
