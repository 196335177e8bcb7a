"""The live page without a browser: what it shows of which trials, and that it answers whatever it
finds."""

import json
from dataclasses import replace

import pytest

from bitfront import cli
from bitfront.dashboards.pages.live.app import live_app
from bitfront.dashboards.pages.live.callbacks import PATIENCE, Chosen, news, parts_of
from bitfront.dashboards.pages.live.figures import TABS, filtered, live_front, tab_figures, tabs_of
from bitfront.dashboards.pages.live.table import trial_table
from bitfront.dashboards.pages.server import HomeSource
from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.session.session import Session
from bitfront.trainables.files import write_atomically

TINY = """\
name: tiny
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 2
space:
  method: [bnn, bnn+]
  plan: {per: layer, levels: [F, B]}
search: {sampler: random, trials: 30, early_stopping: true}
"""


def end(session, state):
    entry = session.ask()
    rows = [{"epoch": e, "val_accuracy": entry.costs["flops_pct"] / 100 * e / 2} for e in (1, 2)]
    if state == "failed":
        session.fail(entry.id, "nan", "the loss is nan")
    elif state == "stopped":
        session._stopped[entry.id] = 0.5
        session._note(entry.id, rows[0])
        session.finish(entry.id, rows[0])
    else:
        session.finish(entry.id, {**rows[-1], "history": rows})
    return entry


@pytest.fixture
def session(tmp_path):
    config, space = load_text(TINY, "tiny.yaml")
    folder = SearchFolder(tmp_path / "tiny")
    write_atomically(folder.config_file, config.dump())
    return Session(config, space, folder, tracker=None)


@pytest.fixture
def source(session):
    for state in ("complete", "complete", "complete", "stopped", "failed"):
        end(session, state)
    session.ask()
    return HomeSource(session.folder.path.parent)


def drawn(figure, name=None):
    """The trials of a figure's points."""
    traces = [
        t
        for t in figure.data
        if t.type == "scatter" and t.mode == "markers" and (name is None or t.name == name)
    ]
    return {trial for trace in traces for trial in trace.customdata or ()}


def test_a_filter_leaves_the_trials_it_names_and_their_colours(source):
    view = source.look("tiny")
    assert filtered(view, [], []) is view
    for method in view.methods:
        left = filtered(view, [method], [])
        assert {t.method for t in left.trials} == {method}
        assert left.methods == view.methods
        ids = {t.id for t in left.trials}
        assert drawn(live_front(left, stopped=False)) == {
            p.trial for p in view.points if p.trial in ids
        }
    assert {t.state for t in filtered(view, [], ["failed", "running"]).trials} == {
        "failed",
        "running",
    }


def test_stopped_trials_are_on_the_front_only_when_asked_for(source):
    view = source.look("tiny")
    (stopped,) = [t.id for t in view.trials if t.state == "stopped"]
    left = filtered(view, [], ["stopped"])
    (figure,) = tab_figures("front", left, ["stopped"], dict)
    assert drawn(figure) == {stopped}
    (figure,) = tab_figures("front", view, [], dict)
    assert stopped not in drawn(figure)


def test_tabs_have_figures_and_only_what_there_is_to_show(source):
    view = source.look("tiny")
    assert set(TABS) - set(tabs_of(view)) == {"pairs", "slices", "contour", "compare"}
    for tab in tabs_of(view):
        figures = tab_figures(tab, view, [], dict)
        assert bool(figures) is (tab != "trials")
        assert all(json.loads(figure.to_json())["data"] is not None for figure in figures)


def test_the_table_has_the_settings_that_differ_and_numbers_as_in_the_ledger(source):
    view = source.look("tiny")
    table = trial_table(view)
    names = [column["name"] for column in table["columns"]]
    assert names[:4] == ["trial", "state", "method", "accuracy"]
    assert names[-2:] == ["seconds", "plan"]
    assert {row[0] for row in table["rows"]} == set(view.by_id)
    assert set(table["front"]) == view.on_front
    for row in table["rows"]:
        trial = view.by_id[row[0]]
        assert row[-1] == trial.plan
        known = trial.values.get("val_accuracy")
        assert row[3] == (None if known is None else pytest.approx(known, rel=1e-5))
    states = {row[1] for row in table["rows"]}
    assert {"complete", "stopped", "failed: nan", "interrupted"} == states


def test_searches_with_other_objectives_are_not_compared(source, make_view):
    view = source.look("tiny")
    other = make_view("other")
    parts = parts_of(view, [other], "compare", Chosen(), dict)
    assert "different objectives" in parts.below
    both = parts_of(other, [make_view("second", shift=0.1)], "compare", Chosen(), dict)
    assert len(both.figures) == 2
    assert parts_of(view, [], "compare", Chosen(), dict).tab == "front"


def test_a_picture_over_two_settings_shows_those_that_are_chosen(make_view):
    view = make_view()
    trials = [
        replace(view.trials[i % 4], id=f"t{i}", number=i, settings={"width": "1"},
                params={"method": "bnn", "lr": 10.0 ** -(i % 5), "width": i, "depth": i * i})
        for i in range(20)
    ]  # fmt: skip
    view = replace(view, trials=trials, front=["t1", "t2"])
    parts = parts_of(view, [], "contour", Chosen(), lambda: {"width": 0.7, "lr": 0.2})
    assert parts.settings == ["width", "lr", "depth"]
    assert parts.axes == ("width", "lr")
    parts = parts_of(view, [], "contour", Chosen(x="depth", y="lr"), dict)
    assert parts.axes == ("depth", "lr")
    (figure,) = parts.figures
    assert figure.layout.yaxis.type == "log"
    assert drawn(figure) == {trial.id for trial in trials}


def test_a_version_changes_with_the_ledger_and_with_nothing_else(source, session):
    first = source.version("tiny")
    view = source.look("tiny")
    assert source.version("tiny") == first
    assert source.look("tiny") is view
    entry = end(session, "complete")
    assert source.version("tiny") != first
    assert source.look("tiny").by_id[entry.id].state == "complete"


def test_what_was_sent_and_never_drawn_is_sent_again_less_and_less_often():
    seen = news("tiny", "1", 1, None, None)
    assert news("tiny", "1", 90, seen, seen) is None
    assert news("tiny", "2", 2, seen, seen)["version"] == "2"
    sent, ticks = seen, []
    for tick in range(2, 40):
        again = news("tiny", "1", tick, sent, None)
        if again is not None:
            sent = again
            ticks.append(tick)
    assert ticks == [1 + PATIENCE, 1 + 3 * PATIENCE, 1 + 7 * PATIENCE]


def test_what_cannot_be_read_is_a_sentence(source, tmp_path):
    assert "unknown search 'none'" in source.look("none")
    write_atomically(tmp_path / "odd" / "search.yaml", "name: [")
    assert "damaged" in source.look("odd")
    for file in (tmp_path / "tiny").glob("ledger.db*"):
        file.write_bytes(b"no database, but long enough to be looked at " * 99)
    assert "cannot be read" in source.look("tiny")
    assert [each.name for each in source.searches()] == ["odd", "tiny"]
    client = live_app(source, "tiny").server.test_client()
    assert client.get("/_dash-layout").status_code == 200


def test_a_search_without_a_ledger_is_shown_and_followed(session, tmp_path):
    folder = SearchFolder(tmp_path / "later")
    config = session.config.model_copy(update={"name": "later"})
    write_atomically(folder.config_file, config.dump())
    source = HomeSource(tmp_path)
    assert source.look("later").trials == []
    later = Session(config, session.ledger.space, folder, tracker=None)
    end(later, "complete")
    assert len(source.look("later").trials) == 1


def test_only_the_page_s_own_files_are_served(source):
    client = live_app(source).server.test_client()
    assert client.get("/assets/live.js").status_code == 200
    for path in ("/assets/pyproject.toml", "/assets/../live.py", "/assets/tiny/ledger.db"):
        assert client.get(path).status_code == 404
    policy = client.get("/").headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';")
    assert "http" not in policy


@pytest.mark.parametrize("option", [[], ["--optuna"]])
def test_a_port_that_is_taken_is_an_error_with_a_way_out(session, tmp_path, option, capsys):
    import socket

    if option:
        pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["dashboard", "tiny", "--port", str(port), "--no-browser", "--home", str(tmp_path)]
        assert cli.main([*words, *option]) == 2
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in told
    assert port < int(told.rpartition("--port ")[2]) < port + 50


def test_another_address_is_warned_about(session, tmp_path, monkeypatch, capsys):
    class Server:
        server_port = 8050

        def serve_forever(self):
            raise KeyboardInterrupt

        def server_close(self):
            pass

    monkeypatch.setattr("werkzeug.serving.make_server", lambda *a, **k: Server())
    monkeypatch.setattr("bitfront.dashboards.pages.server.check_free", lambda host, port: None)
    assert cli.main(["dashboard", "--host", "0.0.0.0", "--home", str(tmp_path)]) == 0
    assert "no login" in capsys.readouterr().out
    assert cli.main(["dashboard", "--home", str(tmp_path)]) == 0
    assert "warning" not in capsys.readouterr().out


def test_optuna_dashboard_that_is_missing_comes_with_the_command_that_gets_it(
    session, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(__import__("sys").modules, "optuna_dashboard", None)
    assert cli.main(["dashboard", "tiny", "--optuna", "--home", str(tmp_path)]) == 2
    assert "pip install 'bitfront[optuna-dashboard]'" in capsys.readouterr().err


def test_an_unknown_search_is_an_error(session, tmp_path, capsys):
    assert cli.main(["dashboard", "tony", "--home", str(tmp_path)]) == 2
    assert "unknown search 'tony'" in capsys.readouterr().err
