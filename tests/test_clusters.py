"""The files that start clusters, held against Ray's own schema and the shell's own checkers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
SLURM = ROOT / "clusters" / "slurm.sh"


@pytest.mark.parametrize("name", ["cluster.yaml", "clusters/local.yaml"])
def test_ray_up_takes_the_file_as_it_is(name):
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load((ROOT / name).read_text()))
    validate_config(config)
    started = " ".join([*config["head_start_ray_commands"], *config["worker_start_ray_commands"]])
    assert started.count("RAY_AUTH_MODE=token ") == 2, "every node asks for the password"
    assert "bitfront" in " ".join(config["setup_commands"]), "the project is on every node"


def test_the_cluster_has_a_head_without_trials_and_gpu_workers_that_come_and_go():
    types = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    workers = [kind for name, kind in types.items() if name != "head"]
    assert all(w["min_workers"] == 0 < w["max_workers"] and w["resources"]["GPU"] for w in workers)
    assert any("InstanceMarketOptions" in w["node_config"] for w in workers), "spot"


def test_spot_machines_are_started_before_dear_ones():
    """By Ray's own scheduler, which decides between kinds that fit by their names."""
    from functools import partial

    from ray.autoscaler._private.node_provider_availability_tracker import (
        NodeAvailabilitySummary,
    )
    from ray.autoscaler._private.resource_demand_scheduler import (
        _default_utilization_scorer,
        get_nodes_for,
    )

    types = yaml.safe_load((ROOT / "cluster.yaml").read_text())["available_node_types"]
    score = partial(
        _default_utilization_scorer, node_availability_summary=NodeAvailabilitySummary({})
    )
    started, _ = get_nodes_for(types, {}, "head", 10, [{"CPU": 2, "GPU": 1}] * 9, score)
    assert started == {"gpu_spot": 8, "gpu_on_demand": 1}


def test_no_ledger_is_on_a_network_disk():
    """SQLite corrupts there: what nodes share are checkpoints."""
    for name in ("cluster.yaml", "clusters/local.yaml"):
        config = yaml.safe_load((ROOT / name).read_text())
        start = " ".join(config["head_start_ray_commands"])
        assert re.search(r"BITFRONT_HOME=(~|/home/ray)/bitfront-runs ", start)
    documents = list(yaml.safe_load_all((ROOT / "clusters" / "kuberay.yaml").read_text()))
    claims = {d["metadata"]["name"]: d["spec"]["accessModes"] for d in documents[:2]}
    assert claims["bitfront-runs"] == ["ReadWriteOnce"]


def test_a_file_with_an_unknown_key_would_be_refused():
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    config["max_worker"] = 3
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(config))


def test_rays_autoscaler_reads_the_kubernetes_manifest():
    """The CRD's schema is not at hand here; Ray's own reader of a RayCluster is."""
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )
    from ray.autoscaler._private.util import validate_config

    *claims, cluster = yaml.safe_load_all((ROOT / "clusters" / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    cluster["metadata"]["namespace"] = "default"
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    validate_config(config)
    types = config["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["gpu"]["resources"]["GPU"] == 1
    assert types["gpu"]["min_workers"] == 0 < types["gpu"]["max_workers"]
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        mounted = {v["name"] for v in container["volumeMounts"]}
        assert mounted == {v["name"] for v in group["template"]["spec"]["volumes"]}
        volumes = [v["persistentVolumeClaim"] for v in group["template"]["spec"]["volumes"]]
        known = [{"claimName": claim["metadata"]["name"]} for claim in claims]
        assert all(volume in known for volume in volumes)


def test_the_slurm_script_is_sound_shell():
    subprocess.run(["bash", "-n", SLURM], check=True)
    beside = Path(sys.executable).with_name("shellcheck")
    checker = shutil.which("shellcheck") or (beside if beside.exists() else None)
    if checker is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([checker, SLURM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
