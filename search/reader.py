"""A ledger read again and again, for pages that follow a search: what has ended is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from search.study import Entry, entry_of, stored_study

if TYPE_CHECKING:
    from optuna.storages import BaseStorage


class LedgerReader:
    """Only reads, so it never disturbs a search; a ledger that is not there yet has no trials."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._found: tuple[BaseStorage, int] | None = None
        self._ended: dict[int, Entry] = {}

    def entries(self) -> list[Entry]:
        """All trials. Those that have ended are the same objects every time."""
        found = self._study()
        if found is None:
            return []
        storage, study_id = found
        return [self._entry(trial) for trial in storage.get_all_trials(study_id, deepcopy=False)]

    def attributes(self) -> dict[str, Any]:
        """What the search keeps beside its trials, such as its reference point."""
        found = self._study()
        return {} if found is None else found[0].get_study_user_attrs(found[1])

    def _study(self) -> tuple[BaseStorage, int] | None:
        if self._found is None:
            self._found = stored_study(self.url, self.name)
        return self._found

    def _entry(self, trial: Any) -> Entry:
        entry = self._ended.get(trial.number)
        if entry is None:
            entry = entry_of(trial)
            if trial.state.is_finished():
                self._ended[trial.number] = entry
        return entry
