"""The live page answers by its own names only, and takes nothing from a page of another origin."""

import pytest

from bitfront.dashboards.pages.hosts import guarded
from bitfront.dashboards.pages.live.app import live_app

CALLBACK = "/_dash-update-component"


class NoSearches:
    def searches(self):
        return []


@pytest.fixture
def page():
    return live_app(NoSearches()).server.test_client()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8050", "localhost:1", "LOCALHOST:8050", "[::1]", "[::1]:8050"],
)
def test_the_page_answers_on_loopback_whatever_the_port(host, page):
    assert page.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8050",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8050",
        "127.0.0.1@evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1,evil.example",
        "10.0.0.1",
        "[::2]:8050",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/_dash-layout", "/assets/live.js"])
def test_a_name_that_was_made_to_point_here_gets_403_and_one_line(host, path, page):
    answer = page.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert len(answer.text.splitlines()) == 1


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({}, True),
        ({"Origin": "http://127.0.0.1:8050"}, True),
        ({"Origin": "http://127.0.0.1:8050", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:3000"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_a_callback_is_taken_from_the_page_itself_only(headers, taken, page):
    answer = page.post(CALLBACK, json={}, headers={"Host": "127.0.0.1:8050", **headers})
    assert (answer.status_code != 403) is taken


def parts(*names):
    """Components of a request, by `ID.PROPERTY`."""
    return [dict(zip(("id", "property"), name.split("."), strict=True)) for name in names]


OUTPUTS = (
    "seen.data",
    "turn.data",
    "search.options",
    "search.value",
    "others.options",
    "others-place.hidden",
)
SEEN = f"..{'...'.join(OUTPUTS)}.."
TICK = {
    "output": SEEN,
    "outputs": parts(*OUTPUTS),
    "inputs": [
        {"id": "tick", "property": "n_intervals", "value": 1},
        *parts("search.value", "others.value"),
    ],
    "state": parts("seen.data", "turn.data", "drawn.data", "search.options", "others.options"),
    "changedPropIds": ["tick.n_intervals"],
}


def test_a_tick_of_the_page_is_answered(page):
    assert page.post(CALLBACK, json=TICK).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"output": "none.data"},
        {"output": "..seen.data.."},
        {"output": 3},
        {"outputs": []},
        {"outputs": {"id": "seen", "property": "data"}},
        {"inputs": []},
        {"inputs": "tick"},
        {"inputs": [{"id": "tick", "property": "n_intervals"}]},
        {"inputs": [{"id": "tick"}, {"id": "search"}]},
        {"state": None},
        {"changedPropIds": 3},
    ],
)
def test_a_callback_that_the_page_does_not_have_gets_400_and_one_line(change, page, caplog, capfd):
    answer = page.post(CALLBACK, json={**TICK, **change})
    assert answer.status_code == 400
    assert len(answer.text.splitlines()) == 1
    assert not caplog.records
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[1]", b"null"])
def test_a_request_that_is_no_callback_gets_400(body, page):
    answer = page.post(CALLBACK, data=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


def asked(host, name, more=()):
    """The status of an app that listens on `host` and is asked by `name`."""
    told = []
    app = guarded(lambda environ, start: start("200 OK", []) or [], host, more)
    app({"HTTP_HOST": name, "REQUEST_METHOD": "GET"}, lambda status, head: told.append(status))
    return told[0][:3]


def test_a_page_on_another_address_answers_by_that_and_by_names_it_was_given(monkeypatch):
    assert asked("10.0.0.7", "10.0.0.7:8050") == "200"
    assert asked("10.0.0.7", "localhost:8050") == "200"
    assert asked("10.0.0.7", "10.0.0.8:8050") == "403"
    assert asked("127.0.0.1", "front.example.org", ["front.example.org"]) == "200"
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    monkeypatch.setattr("socket.getfqdn", lambda: "box.lab.example")
    for everywhere in ("0.0.0.0", "::"):
        for name in ("box:8050", "box.lab.example", "10.0.0.7:8050", "[fe80::1]:8050", "localhost"):
            assert asked(everywhere, name) == "200"
        assert asked(everywhere, "evil.example") == "403"
