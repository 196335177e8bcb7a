"""A folder whose name another search has taken in a shared database."""

import json

from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.reader import read_entries
from bitfront.search.session.beginning import has_trials


def test_a_folder_reads_no_study_that_belongs_to_another_search(tmp_path, monkeypatch):
    import optuna

    url = f"sqlite:///{tmp_path}/shared.db"
    monkeypatch.setenv("BITFRONT_LEDGER", url)
    study = optuna.create_study(study_name="x", storage=url, directions=["maximize", "minimize"])
    study.set_metric_names(["val_accuracy", "flops"])
    study.set_user_attr("owner", "ann0ann0ann0")
    theirs = SearchFolder(tmp_path / "bob" / "x")
    theirs.path.mkdir(parents=True)
    theirs.config_file.write_text("name: x\n")
    theirs.ledger_file.write_text(json.dumps({"url": url}))
    assert theirs.identity != "ann0ann0ann0"
    seen = []
    monkeypatch.setattr(
        "bitfront.search.ledger.reader.read_records", lambda *_, **__: seen.append(1) or []
    )
    assert not has_trials(theirs)
    assert seen == [], "not even looked at"
    monkeypatch.setattr("bitfront.search.ledger.reader._checked_reference", lambda _: [0.0, 0.0])
    monkeypatch.setattr("bitfront.search.ledger.reader.check_ledger_format", lambda *_: None)
    assert read_entries(url, "x", "ann0ann0ann0") == []
    assert seen == [1], "their own study is"
