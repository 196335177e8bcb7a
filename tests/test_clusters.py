"""The files that start clusters, held against Ray's own schema and scheduler, the shell's checker,
PostgreSQL, and what the code reads."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bitfront.cli import build_parser
from testbed.rig import POSTGRES, Postgres

ROOT = Path(__file__).parent.parent
CLUSTERS = ROOT / "clusters"
SLURM = CLUSTERS / "slurm.sh"
PAGE = (ROOT / "docs" / "cluster.md").read_text()
FILES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "cluster.yaml", *sorted(CLUSTERS.iterdir()))
}
RAY_FILES = ["cluster.yaml", "clusters/local.yaml"]
COMMANDS = [
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
]
# The oldest driver a CUDA of this number runs with: NVIDIA, "CUDA Compatibility", table 1.
OLDEST_DRIVER = {"12": "525", "13": "580"}


def ray_file(name):
    return yaml.safe_load(FILES[name])


def environment(name, node):
    """The variables a node's Ray is started with, by the shell that would set them."""
    config = ray_file(name)
    set_up = [*config["setup_commands"], *config.get(f"{node}_setup_commands", [])]
    written = [
        command for command in set_up if "~/.bitfront-env" in command and "printf" in command
    ]
    *_, start = config[f"{node}_start_ray_commands"]
    before, _, _ = start.partition("ray start")
    with tempfile.TemporaryDirectory() as home:
        script = "\n".join([*written, f"{before} env"])
        env = {"HOME": home, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            ["bash", "-c", script], env=env, capture_output=True, text=True, check=True
        )
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {key: value.replace(home, "~") for key, _, value in lines}


def manifest(kind, name="bitfront"):
    """The object of clusters/kuberay.yaml of this kind and name."""
    documents = yaml.safe_load_all(FILES["clusters/kuberay.yaml"])
    (found,) = [d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def pods():
    """The specification of every pod of clusters/kuberay.yaml."""
    cluster = manifest("RayCluster")["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    services = [
        manifest("Deployment", f"bitfront-{name}")["spec"] for name in ("database", "mlflow")
    ]
    return [group["template"]["spec"] for group in [*groups, *services]]


def pinned(package):
    (version,) = re.findall(
        rf"^{package}==(.+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE
    )
    return version


@pytest.mark.parametrize("name", RAY_FILES)
def test_ray_up_takes_the_file_as_it_is(name):
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(ray_file(name))
    validate_config(config)
    for node in ("head", "worker"):
        assert environment(name, node)["RAY_AUTH_MODE"] == "token", (
            "every node asks for the password"
        )
        assert environment(name, node)["PATH"].startswith("~/bitfront-venv/bin:")
    assert "~/bitfront'[postgres]'" in " ".join(config["setup_commands"]), "it is on every node"


def test_all_machines_of_ones_own_are_started():
    """As many as there are addresses, by the autoscaler that does not take the head for one of
    them: Ray's newer one started one of two (2.60, seen on testbed.rig.by_hand). It tries one that
    is off for days: after its first failure it would never again."""
    from ray.autoscaler._private import constants
    from ray.autoscaler._private.util import prepare_config

    config = prepare_config(ray_file("clusters/local.yaml"))
    (kind,) = config["available_node_types"].values()
    assert kind["min_workers"] == kind["max_workers"] == len(config["provider"]["worker_ips"])
    settings = environment("clusters/local.yaml", "head")
    assert settings["RAY_enable_autoscaler_v2"] == "0"
    patience = settings["AUTOSCALER_NODE_START_WAIT_S"]
    assert int(patience) > 86400
    assert "AUTOSCALER_NODE_START_WAIT_S" in vars(constants), "Ray knows it by this name"


def test_the_cluster_has_a_head_without_trials_and_gpu_workers_that_come_and_go():
    types = ray_file("cluster.yaml")["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0}
    workers = [kind for name, kind in types.items() if name != "head"]
    assert all(w["min_workers"] == 0 < w["max_workers"] and w["resources"]["GPU"] for w in workers)
    assert any("InstanceMarketOptions" in w["node_config"] for w in workers), "spot"


def test_machines_of_the_cloud_have_a_driver_and_rights_of_their_own():
    """Ray's own image has a driver too old for torch, and it gives workers no rights: no S3. EC2
    looks the image up when a machine starts, which the head's role must allow."""
    types = ray_file("cluster.yaml")["available_node_types"]
    images = {kind["node_config"]["ImageId"] for kind in types.values()}
    (parameter,) = (image.removeprefix("resolve:ssm:") for image in images)
    script = FILES["clusters/aws.sh"]
    (allowed,) = re.findall(r"arn:aws:ssm:\*::parameter(/.+)\*", script)
    assert parameter.startswith(allowed)
    profiles = {name: kind["node_config"]["IamInstanceProfile"] for name, kind in types.items()}
    assert profiles["head"] == {"Name": "bitfront-head"}
    assert profiles["gpu_spot"] == profiles["gpu_on_demand"] == {"Name": "bitfront-worker"}
    assert set(re.findall(r"^make_profile (\S+)", script, flags=re.MULTILINE)) == {
        profile["Name"] for profile in profiles.values()
    }


def newer_scheduler_starts(types):
    """How many machines of each kind Ray's autoscaler since 2.50 starts for nine GPUs."""
    from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    kinds = {
        name: NodeTypeConfig(
            name=name,
            min_worker_nodes=0,
            max_worker_nodes=kind.get("max_workers", 0),
            priority=kind.get("priority", 0),
            resources=kind["resources"],
        )
        for name, kind in types.items()
    }
    trial = ResourceRequestUtil.make({"CPU": 2, "GPU": 1})
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=kinds,
        max_num_nodes=11,
        resource_requests=ResourceRequestUtil.group_by_count([trial] * 9),
    )
    reply = ResourceDemandScheduler(event_logger=None).schedule(request)
    return {launch.instance_type: launch.count for launch in reply.to_launch}


def test_spot_machines_are_started_before_dear_ones():
    """By both of Ray's own schedulers; the newer one alternates without a priority."""
    from functools import partial

    from ray.autoscaler._private.node_provider_availability_tracker import (
        NodeAvailabilitySummary,
    )
    from ray.autoscaler._private.resource_demand_scheduler import (
        _default_utilization_scorer,
        get_nodes_for,
    )

    types = ray_file("cluster.yaml")["available_node_types"]
    score = partial(
        _default_utilization_scorer, node_availability_summary=NodeAvailabilitySummary({})
    )
    started, _ = get_nodes_for(types, {}, "head", 10, [{"CPU": 2, "GPU": 1}] * 9, score)
    assert started == {"gpu_spot": 8, "gpu_on_demand": 1}
    assert newer_scheduler_starts(types) == {"gpu_spot": 8, "gpu_on_demand": 1}
    level = {name: {**kind, "priority": 0} for name, kind in types.items()}
    assert newer_scheduler_starts(level) != newer_scheduler_starts(types), "a priority is needed"


def test_no_ledger_is_on_a_network_disk():
    """SQLite corrupts there: what nodes share are checkpoints and data."""
    for name in RAY_FILES:
        assert environment(name, "head")["BITFRONT_HOME"] == "~/bitfront-runs"
    for name in ("runs", "database"):
        claim = manifest("PersistentVolumeClaim", f"bitfront-{name}")
        assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_a_lost_node_loses_no_checkpoint_and_every_node_finds_the_data():
    for name in RAY_FILES:
        head, worker = environment(name, "head"), environment(name, "worker")
        assert re.match(r"(s3:/|/mnt)/", head["BITFRONT_STORAGE"])
        assert head["BITFRONT_DATA"] == worker["BITFRONT_DATA"]
    copied = "aws s3 sync --only-show-errors s3://my-bucket/data ~/bitfront-data"
    assert copied in " ".join(ray_file("cluster.yaml")["setup_commands"])
    assert environment("cluster.yaml", "worker")["BITFRONT_DATA"] == "~/bitfront-data"
    head, worker, *_ = (pod["containers"][0] for pod in pods())
    known = {e["name"]: e.get("value") for e in head["env"]}
    shared = {v["mountPath"] for v in worker["volumeMounts"]}
    assert {Path(known["BITFRONT_STORAGE"]).parent, Path(known["BITFRONT_DATA"]).parent} == {
        Path(path) for path in shared
    }
    assert {"name": "BITFRONT_DATA", "value": known["BITFRONT_DATA"]} in worker["env"]


def test_a_file_with_an_unknown_key_would_be_refused():
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = ray_file("cluster.yaml")
    config["max_worker"] = 3
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(config))


def test_rays_autoscaler_reads_the_kubernetes_manifest():
    """The CRD's schema is not at hand here; Ray's own reader of a RayCluster is."""
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )
    from ray.autoscaler._private.util import validate_config

    cluster = manifest("RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    cluster["metadata"]["namespace"] = "default"
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    validate_config(config)
    types = config["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    assert types["gpu"]["resources"]["GPU"] == 1
    assert types["gpu"]["min_workers"] == 0 < types["gpu"]["max_workers"]


def test_what_pods_name_is_there():
    """Volumes, claims, config maps, services; secrets are made by the commands of the page."""
    for pod in pods():
        (container,) = pod["containers"]
        assert {v["name"] for v in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert manifest("ConfigMap", volume["configMap"]["name"])
            else:
                assert manifest(
                    "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
                )
    text = FILES["clusters/kuberay.yaml"]
    for host in re.findall(r"(?:@|http://)(bitfront-\w+)[:/]", text):
        selector = manifest("Service", host)["spec"]["selector"]
        template = manifest("Deployment", host)["spec"]["template"]
        assert template["metadata"]["labels"] == selector
        assert manifest("NetworkPolicy", host)["spec"]["podSelector"]["matchLabels"] == selector
    for secret in set(re.findall(r"secret(?:Key)?Ref: {name: ([\w-]+)", text)):
        assert f"kubectl create secret generic {secret} " in PAGE


def test_the_image_is_of_the_ray_that_is_installed_elsewhere():
    assert set(re.findall(r"rayproject/ray:([\d.]+)-", " ".join(FILES.values()) + PAGE)) == {
        pinned("ray")
    }
    assert manifest("RayCluster")["spec"]["rayVersion"] == pinned("ray")


def test_the_driver_that_is_asked_for_runs_the_cuda_of_torch():
    import torch

    cuda = pinned("cuda-toolkit").partition(".")[0]
    assert torch.version.cuda is None or torch.version.cuda.partition(".")[0] == cuda
    for name in [*RAY_FILES, "clusters/kuberay.yaml", "docs/cluster.md"]:
        text = " ".join((ROOT / name).read_text().replace("#", " ").split())
        assert set(re.findall(r"driver (\d{3})", text)) == {OLDEST_DRIVER[cuda]}, name
        assert cuda in re.findall(r"CUDA (\d\d)\b(?!\.)", text), name
    (check,) = ray_file("cluster.yaml")["worker_setup_commands"]
    for found, code in {"595.91.07": 0, f"{OLDEST_DRIVER[cuda]}.1": 0, "570.86": 1, "": 1}.items():
        asked = re.sub(r"^nvidia-smi .*?\|", f"printf '%s' '{found}' |", check)
        assert subprocess.run(["bash", "-c", asked], capture_output=True).returncode == code


def test_every_environment_variable_is_read_by_the_code():
    """BITFRONT_VENV is slurm.sh's own."""
    rooms = ("bitfront", "search", "trainables")
    code = " ".join(p.read_text() for room in rooms for p in sorted((ROOT / room).rglob("*.py")))
    named = re.findall(r"\bBITFRONT_[A-Z]+", " ".join([*FILES.values(), PAGE]))
    unknown = {name for name in named if f'"{name}"' not in code}
    assert unknown == {"BITFRONT_VENV"}


def test_no_secret_is_in_a_file():
    for name, text in FILES.items():
        assert re.findall(r"://[^\s/@'\"]+:[^\s/@'\"]+@", text) == [], (
            f"a password in a URL: {name}"
        )
    assert "kind: Secret" not in FILES["clusters/kuberay.yaml"]
    for pod in pods():
        for entry in pod["containers"][0].get("env", []):
            if re.search("PASSWORD|TOKEN|KEY", entry["name"]):
                assert "value" not in entry


def test_every_command_in_the_comments_parses():
    parser, tried = build_parser(), 0
    for text in FILES.values():
        for line in re.findall(r"^# +(?:\w+=\w+ )?bitfront (.*)$", text, flags=re.MULTILINE):
            parser.parse_args(shlex.split(line, comments=True))
            tried += 1
    assert tried >= 3


def checked_by_shellcheck(paths):
    beside = Path(sys.executable).with_name("shellcheck")
    checker = shutil.which("shellcheck") or (beside if beside.exists() else None)
    if checker is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([checker, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_scripts_and_commands_are_sound_shell(tmp_path):
    """Scripts as they are, what Ray runs on nodes and what the page says as a script each."""
    scripts = sorted(CLUSTERS.glob("*.sh"))
    texts = {
        f"{Path(name).stem}-{key}": "\n".join(ray_file(name).get(key, []))
        for name in RAY_FILES
        for key in COMMANDS
    }
    texts["roles"] = manifest("ConfigMap", "bitfront-database")["data"]["roles.sh"]
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    texts |= {f"page-{number}": block for number, block in enumerate(blocks)}
    rules = "# shellcheck disable=SC1090,SC1091,SC2016,SC2086,SC2088,SC2164"
    for name, text in texts.items():
        script = tmp_path / f"{name}.sh"
        # SC109x: what is sourced is on the node. SC2016, SC2088: $HOME and ~ are the node's.
        # SC2086: an address has no spaces. SC2164: a reader sees that cd failed.
        script.write_text(f"#!/usr/bin/env bash\n{rules}\n:\n{text}\n")
        scripts.append(script)
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    checked_by_shellcheck(scripts)


STUBS = {
    "scontrol": "echo node-1; echo node-2",
    "srun": """
        while [[ $1 == -* ]]; do [[ $1 == -w ]] && shift; shift; done
        echo "$SRUN_CPUS_PER_TASK $*" >> "$SEEN/srun"
        exec "$@" """,
    "hostname": "echo 10.0.0.1",
    "ray": "[[ $1 == start ]] && exec sleep 30; exit 0",
    "bitfront": """
        env > "$SEEN/env"; echo "$*" > "$SEEN/driver"
        trap 'echo told > "$SEEN/told"; exit 130' TERM
        while :; do sleep 0.05; done""",
}


def test_a_slurm_job_out_of_time_tells_the_driver_and_waits_for_it(tmp_path):
    text = SLURM.read_text()
    assert re.search(r"^#SBATCH --time=\d+:\d\d:\d\d", text, flags=re.MULTILINE)
    assert "#SBATCH --signal=B:TERM@" in text
    assert "#SBATCH --requeue" in text
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name, body in {**STUBS, "python": f'exec {sys.executable} "$@"'}.items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "SEEN": str(tmp_path)}
    env |= {"BITFRONT_VENV": str(tmp_path / "venv"), "SLURM_JOB_NODELIST": "node-[1-2]"}
    env |= {"SLURM_JOB_ID": "77", "SLURM_CPUS_PER_TASK": "16", "SLURM_GPUS_ON_NODE": "4"}
    job = subprocess.Popen(["bash", SLURM, "my.yaml"], env=env, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "driver").exists() or len(steps(tmp_path)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.1)  # the driver's own handler
        job.send_signal(signal.SIGTERM)
        assert job.wait(20) == 130
    finally:
        os.killpg(job.pid, signal.SIGKILL)
    assert (tmp_path / "told").exists()
    assert (tmp_path / "driver").read_text() == "run my.yaml --address 10.0.0.1:20077\n"
    seen = (tmp_path / "env").read_text()
    for folder in ("HOME=%s/bitfront-runs", "STORAGE=%s/bitfront-checkpoints"):
        assert f"BITFRONT_{folder % tmp_path}\n" in seen
    assert all(step.startswith("16 ray start") for step in steps(tmp_path)[1:]), "all cores"


def steps(folder):
    seen = folder / "srun"
    return seen.read_text().splitlines() if seen.exists() else []


# `aws s3 cp` and `sync`, with a folder for a bucket.
AWS = """\
import os, shutil, sys
from pathlib import Path

kind, verb, *places = [word for word in sys.argv[1:] if not word.startswith("--")]
assert kind == "s3" and verb in ("cp", "sync")
bucket = Path(os.environ["BUCKET"])
source, target = (bucket / p[5:] if p.startswith("s3://") else Path(p) for p in places)
shutil.copytree(source, target, dirs_exist_ok=True)
"""
RSYNC = """\
import shutil, sys

source, target = [word for word in sys.argv[1:] if not word.startswith("-")]
shutil.copytree(source, target, dirs_exist_ok=True)
"""
COPIERS = {"aws": AWS, "rsync": RSYNC}


def heads(folder, server):
    """The environments of two heads, one after the other, with stubs for the cloud and systemd."""
    programs = {name: f"#!{sys.executable}\n{text}" for name, text in COPIERS.items()}
    programs["sudo"] = "#!/bin/sh\n"
    for name in ("first", "next"):
        place = folder / name / "bitfront-venv" / "bin"
        place.mkdir(parents=True)
        for program, text in programs.items():
            (place / program).write_text(text)
            (place / program).chmod(0o755)
        known = {"PGHOST": str(server.folder), "PGPORT": str(server.port), "PGUSER": "ubuntu"}
        path = f"{POSTGRES[-1]}:{os.environ['PATH']}"
        yield known | {"HOME": str(folder / name), "BUCKET": str(folder / "bucket"), "PATH": path}


def test_what_a_head_without_a_database_has_is_saved_in_a_folder(tmp_path):
    """As searches keep it then: ledgers are files beside the YAML."""
    server = SimpleNamespace(folder=tmp_path / "no socket", port=1)
    for env, what in zip(heads(tmp_path, server), ("save", "restore"), strict=True):
        ledger = Path(env["HOME"]) / "bitfront-runs" / "hers" / "ledger.db"
        if what == "save":
            ledger.parent.mkdir(parents=True)
            ledger.write_text("trials")
        command = ["bash", CLUSTERS / "keep.sh", what, tmp_path / "other disk" / "kept"]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert ledger.read_text() == "trials"


@pytest.mark.skipif(not POSTGRES, reason="PostgreSQL is not installed")
def test_what_a_head_has_is_saved_and_comes_back_to_the_next_one(tmp_path):
    """Databases, as their member, and searches, those in homes of their own among them. The next
    head has made tables of its own when it is restored."""
    server = Postgres()
    try:
        for env, what in zip(heads(tmp_path, server), ("save", "restore"), strict=True):
            for name in ("bitfront", "mlflow"):
                server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            server.execute_file(CLUSTERS / "database.sql", member="ubuntu")
            server.execute(f"CREATE TABLE trials AS SELECT '{what}' AS made", "bitfront", "ubuntu")
            runs = Path(env["HOME"]) / "bitfront-runs"
            if what == "save":
                (runs / "alice" / "hers").mkdir(parents=True)
                (runs / "alice" / "hers" / "search.yaml").write_text("name: hers")
            command = ["bash", CLUSTERS / "keep.sh", what, "s3://my-bucket/kept"]
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        assert server.execute("SELECT made FROM trials", "bitfront", "ubuntu") == "save\n"
        assert (runs / "alice" / "hers" / "search.yaml").read_text() == "name: hers"
    finally:
        server.remove()
