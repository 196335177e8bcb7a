"""Progress in a notebook: one text below the cell that is replaced, and messages as elsewhere."""

import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bitfront.search.recipes.training_progress import EpochReport
from bitfront.terminal import notebooks
from bitfront.terminal.notebooks import NotebookLine, NotebookTraining
from bitfront.terminal.status_line import StatusLine


@pytest.fixture
def shown(monkeypatch):
    """The texts that the notebook was asked to show below the cell, in order; `new` marks one that
    does not replace another."""
    texts = []

    def display(data, raw, display_id):
        assert raw
        assert display_id
        texts.append(("new", data["text/plain"]))
        return SimpleNamespace(update=lambda data, raw: texts.append(("", data["text/plain"])))

    ipython: Any = ModuleType("IPython")
    ipython_display: Any = ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython_display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython_display)
    return texts


def test_outside_of_a_notebook_the_line_is_the_usual_one():
    assert not notebooks.in_notebook()
    assert type(notebooks.status_line(quiet=False)) is StatusLine


def test_the_status_is_replaced_in_place_and_removed_at_the_end(shown, capsys, monkeypatch):
    monkeypatch.setattr(notebooks, "REFRESH_SECONDS", 0.01)
    ended = iter(range(1000))
    with notebooks.status_line(quiet=False) as line:
        assert isinstance(line, NotebookLine)
        line.wait("starting Ray")
        line.watch(lambda: f"{next(ended)} trials")
        line.say("a trial ended")
        deadline = time.monotonic() + 10
        while len(shown) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert shown[0] == ("new", "starting Ray ...")
    assert ("", "1 trials") in shown
    assert [kind for kind, _ in shown].count("new") == 1
    assert shown[-1] == ("", "")
    assert capsys.readouterr().out == "a trial ended\n"


def test_a_quiet_search_shows_nothing_in_a_notebook(shown):
    with notebooks.status_line(quiet=True) as line:
        line.wait("starting Ray")
    assert shown == []


def test_a_training_shows_its_epochs_in_one_line_and_its_notes_as_messages(shown):
    said = []
    view = notebooks.training_progress(said.append, quiet=False)
    assert isinstance(view, NotebookTraining)
    view.start(SimpleNamespace(expected={}, quality=SimpleNamespace(name="accuracy")), 1)
    view.epoch(EpochReport(0, 0, 2))
    for done in (1, 2):
        view.epoch(EpochReport(0, done, 2, loss=0.5))
    view.note("seed 0: 90 %")
    view.stop()
    assert [text.split(",")[0] for _, text in shown] == [
        "seed 0: epoch 1/2",
        "seed 0: epoch 2/2",
        "",
    ]
    assert said == ["seed 0: 90 %"]
