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

from bitfront.dashboards.pages.hosts import guarded
from bitfront.dashboards.pages.live import live_app
from bitfront.dashboards.pages.source import Listed
from bitfront.search.ledger import folder as home
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.reader import read_only
from bitfront.search.ledger.states import TrialState
from bitfront.search.ledger.storage import LedgerStorage
from bitfront.search.ports import LOOPBACK, check_free, url_of
from bitfront.search.results.importance import importances
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
            if found is not before and found != before:
                self._seen[name] = found, count + 1
            return self._seen[name][0]

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

    def importance(self, name: str) -> Mapping[str, float]:
        """The importances of the settings. They take seconds and change slowly: estimated again
        when there are 20 % more complete trials."""
        view = self.look(name)
        if isinstance(view, str):
            return {}
        ended = view.counts[TrialState.COMPLETE]
        before, shares = self._importance.get(name, (0, {}))
        if ended >= 1.2 * before:
            shares = importances(view)
            self._importance[name] = ended, shares
        return shares


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
    app = live_app(HomeSource(root), name, host=host, names=names)
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
