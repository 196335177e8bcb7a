"""Serves the live page of all searches of a home, or a ledger in Optuna's own dashboard. Both only
read, and listen on loopback unless another host is given."""

from __future__ import annotations

import logging
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before any thread: Plotly takes pandas from the loaded modules, also while another thread (that of
# the importances) has only begun to import it.
import pandas  # noqa: F401

from bitfront.dashboards.pages.hosts import guarded
from bitfront.dashboards.pages.live.app import live_app
from bitfront.dashboards.pages.live.source import Listed
from bitfront.search.ledger import folder as home
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.reader import read_only
from bitfront.search.ledger.states import TrialState
from bitfront.search.ledger.storage import LedgerStorage
from bitfront.search.ports import LOOPBACK, check_free, url_of
from bitfront.search.results.importance import LEAST_TRIALS, importances
from bitfront.search.results.reader import SearchReader
from bitfront.search.urls import redacted, sqlite_path
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    from bitfront.search.results.view import SearchView


class HomeSource:
    """All searches of a home, each read when a page asks for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._readers: dict[str, SearchReader] = {}
        self._seen: dict[str, tuple[SearchView | str, int]] = {}
        self._importance: dict[str, tuple[int, Mapping[str, float]]] = {}
        self._estimating: set[str] = set()
        self._lock = threading.Lock()

    def searches(self) -> list[Listed]:
        folders = reversed(home.list_searches(self.root))
        return [Listed(f.name, f.name + " · running" * f.running) for f in folders]

    def version(self, name: str) -> str:
        """How often the view of the search has changed, as text."""
        self.look(name)
        return str(self._seen[name][1])

    def look(self, name: str) -> SearchView | str:
        with self._lock:
            found = self._read(name)
            before, count = self._seen.get(name, (None, 0))
            if found is not before:
                self._seen[name] = found, count + (found != before)
            return self._seen[name][0]

    def turn(self, name: str) -> str:
        """When the driver of the search last wrote what its trials report."""
        view = self.look(name)
        turn = None if isinstance(view, str) else view.turn
        return "" if turn is None else str(turn.written)

    def _read(self, name: str) -> SearchView | str:
        try:
            folder = home.find(self.root, name)
            if name not in self._readers:
                self._readers[name] = SearchReader(folder)
            return self._readers[name].read()
        except UserError as error:
            self._readers.pop(name, None)
            return redacted(error.message)
        except Exception as error:  # a damaged ledger must not end the page
            self._readers.pop(name, None)
            return redacted(f"search '{name}' cannot be shown: {type(error).__name__}: {error}")

    def importance(self, name: str) -> Mapping[str, float] | None:
        """The importances of the settings; None while they are estimated for the first time. That
        takes seconds, in a thread, and is done again when there are 20 % more complete trials."""
        view = self.look(name)
        if isinstance(view, str):
            return {}
        ended = view.counts[TrialState.COMPLETE]
        if ended < LEAST_TRIALS:
            return {}
        with self._lock:
            known = self._importance.get(name)
            before, shares = known or (0, None)
            if ended >= 1.2 * before and name not in self._estimating:
                self._estimating.add(name)
                threading.Thread(target=self._estimate, args=(name, view), daemon=True).start()
        return shares

    def _estimate(self, name: str, view: SearchView) -> None:
        """Estimate the importances, and let the page draw them."""
        try:
            shares: Mapping[str, float] = importances(view)
        except Exception:  # a page without them is better than none
            shares = {}
        with self._lock:
            self._importance[name] = view.counts[TrialState.COMPLETE], shares
            self._estimating.discard(name)
            found, count = self._seen[name]
            self._seen[name] = found, count + 1


def serve(
    root: Path,
    name: str | None,
    host: str,
    port: int,
    open_browser: bool,
    names: Sequence[str] = (),
    *,
    say: Callable[[str], None],
) -> int:
    """Serve the live page until ctrl-C and return the exit code. `say` prints a line."""
    if name is not None:
        home.find(root, name)
    source = HomeSource(root)
    first = [name] if name is not None else [each.name for each in source.searches()[:1]]
    for each in first:  # read while the browser starts
        threading.Thread(target=source.look, args=(each,), daemon=True).start()
    app = live_app(source, name, host=host, names=names)
    return _serve(app.server, "live page", host, port, open_browser, say)


def serve_optuna(
    folder: SearchFolder,
    host: str,
    port: int,
    open_browser: bool,
    names: Sequence[str] = (),
    *,
    say: Callable[[str], None],
) -> int:
    """Serve a ledger in optuna-dashboard, which can only read it, and return the exit code."""
    try:
        import optuna_dashboard
    except ImportError:
        raise UserError(
            "optuna-dashboard is not installed", "pip install 'bitfront[optuna-dashboard]'"
        ) from None
    from optuna.storages import get_storage

    silence()
    file = sqlite_path(folder.ledger_url)
    if file is not None and not file.exists():
        raise UserError(f"search '{folder.name}' has no ledger yet")
    address = read_only(folder.ledger_url)
    storage = get_storage(
        LedgerStorage(address, skip_compatibility_check=True, skip_table_creation=True)
    )
    app = guarded(optuna_dashboard.wsgi(storage), host, names)
    return _serve(app, "optuna-dashboard", host, port, open_browser, say)


def _serve(
    app: Any,
    what: str,
    host: str,
    port: int,
    open_browser: bool,
    say: Callable[[str], None],
) -> int:
    from werkzeug.serving import make_server

    check_free(host, port)  # werkzeug would end the process
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(host, port, app, threaded=True)
    if host not in LOOPBACK:
        say(f"warning: listening on {host}; the {what} has no login, put one in front of it")
    url = f"{url_of(host, server.server_port)}/"
    say(f"{what}: {url}\nctrl-C ends it")
    sys.stdout.flush()
    if open_browser and sys.stdout.isatty():
        webbrowser.open(url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
    return 0
