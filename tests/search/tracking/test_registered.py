"""A trained network as a version of a registered model in a real MLflow store."""

import pytest
from mlflow import MlflowClient

from bitfront.search.config.load import load_text
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.tracking.network_files import MODEL
from bitfront.search.tracking.registered import check_name, register
from bitfront.search.tracking.runs import experiment_name
from bitfront.trainables.errors import UserError
from testbed.stores import copy_store

YAML = """\
name: kept
task: {dataset: digits, model: {name: mlp}, epochs: 1}
space: {method: bnn, plan: {per: layer, levels: [F, B]}}
search: {trials: 1}
"""


def test_every_final_training_that_is_registered_is_another_version(tmp_path):
    copy_store(None, tmp_path / "mlflow.db")
    config, _ = load_text(YAML, "kept.yaml")
    folder = SearchFolder(tmp_path / "kept")
    folder.path.mkdir()
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert "no run" in register(config, folder, "k", "digits-binary")
    experiment = client.create_experiment(experiment_name(config), str(tmp_path / "files"))
    tags = {"bitfront.search_id": folder.identity, "bitfront.kind": "final"}
    run = client.create_run(experiment, tags={**tags, "bitfront.extra": "final k", "trial": "t1"})
    for _ in range(2):
        assert register(config, folder, "k", "digits-binary") is None
    versions = client.search_model_versions("name = 'digits-binary'")
    assert sorted(int(v.version) for v in versions) == [1, 2]
    assert {v.run_id for v in versions} == {run.info.run_id}
    assert all(v.source.endswith(f"/{MODEL}") and v.tags["trial"] == "t1" for v in versions)


@pytest.mark.parametrize("name", ["", " ", "a/b", "it's", 'say "x"'])
def test_a_name_that_mlflow_refuses_is_refused_before_the_training(name):
    with pytest.raises(UserError, match="no name of a registered model"):
        check_name(name)
