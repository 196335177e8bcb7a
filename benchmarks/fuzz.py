"""Mangled input: YAMLs, --set values, packed checkpoints, stored files, ledgers. Nothing may end in
a traceback, take more than 5 s of processor time or 1 GB, or repeat its input at length.

    python -m benchmarks.fuzz [--seed 0] [--quick] [--kind ledgers] [--case ledgers:17]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.mangling import (
    SPECIALS,
    VALUES,
    mangle_ledger,
    mangled_bytes,
    mangled_data,
    mangled_json,
    mangled_yaml,
)
from bitfront.search.ledger.states import TrialState

COUNTS = {"yamls": 10_000, "sets": 2_000, "packed": 1_000, "stored": 1_000, "ledgers": 300}
QUICK = {"yamls": 300, "sets": 100, "packed": 60, "stored": 40, "ledgers": 30}
CPU_SECONDS = 5.0
# Beside the 600 MB that torch, Ray and the rest take when they are loaded: together 1 GB.
GROWTH_KB = 400_000
LONGEST_LINE = 1_000
# Wall-clock seconds without a word from a worker: it hangs where no signal reaches it.
SILENCE = 120.0
# Cases a process: starting one takes as long as hundreds of small cases.
BATCH = {"yamls": 2_500, "sets": 1_000, "packed": 500, "stored": 250, "ledgers": 150}
# A safety net caught what should have been told: `status` and the live page have one each.
NET = re.compile(r"damaged: \w+(Error|Exception|Iteration): |cannot be shown: ")

YAMLS = {
    "plain": """\
name: plain
task:
  dataset: digits
  model: {name: mlp, depth: 5, width: 16}
  epochs: 3
  batch_size: 32
  subset: 200
  optimizer: {name: adam, lr: 0.01}
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, B]}
  optimizer.lr: {float: [0.001, 0.03], log: true}
  bnn++.mu_end: {float: [10, 100], log: true}
search: {sampler: random, trials: 12, seed: 0}
tracking: {enabled: false}
""",
    "full": """\
name: full
description: everything a search can say
task:
  dataset: digits
  model: {name: cresnet, depth: 8, width: 8}
  epochs: 4
  batch_size: 32
  schedule: {shape: cosine, warmup: 0.1}
  loss: {label_smoothing: 0.1, distill: logits}
  pretrain: {epochs: 2, seed: 1}
  augmentation: none
  val_fraction: 0.25
space:
  method: bnn
  plan: {selector: [front, rear], budget: [80, 40, 20]}
  model.width: [8, 12]
  optimizer.lr: {float: [1e-3, 3e-2], log: true}
  bnn.scale: [none, layer]
objectives: {val_accuracy: max, flops: min, bytes: min}
limits: {flops_pct: 95, bytes: {max: 1000000}}
search:
  sampler: tpe
  trials: 20
  confirm: 0.2
  early_stopping: {rungs: [0.25, 0.5], keep: 0.5}
resources: {cpus: 1, concurrent: 2, retries: 1, custom: {disk: 1}}
tracking: {enabled: false, patience: 5}
paper:
  title: A paper, 2020
  table: Table 3
  dataset: digits
  model: cresnet
  rows:
    - {label: ours, value: 0.9, flops_pct: 40, where: {method: bnn}}
    - {label: theirs, value: 0.8, spread: 0.01}
""",
    "robust": """\
name: robust
task:
  dataset: digits
  model: {name: rn-narrow, width: 8, stages: 2, lbn: true, affine: false}
  epochs: 2
  binarize: all
  attack: {eps: 8/255, train: pgd, steps: 2, examples: 50}
space:
  method: edge-popup
  plan: W
  edge-popup.rate: [0.5, 0.9]
  edge-popup.p: {float: [0, 1]}
objectives: {val_robust_pgd20: max, val_accuracy: max, flops: min}
search: {sampler: random, trials: 3}
""",
}
KEYS = (
    "name", "description", "storage", "task", "task.dataset", "task.model", "task.model.name",
    "task.model.depth", "task.model.width", "task.epochs", "task.batch_size", "task.optimizer",
    "task.optimizer.lr", "task.schedule", "task.schedule.at", "task.loss.distill", "task.attack",
    "task.loss.distill.teacher", "task.attack.eps", "task.attack.evaluate", "task.pretrain",
    "task.pretrain.checkpoint", "task.pretrain.epochs", "task.subset", "task.val_fraction",
    "task.split_seed", "task.data_dir", "space", "space.method", "space.plan", "space.plan.levels",
    "space.optimizer.lr", "space.bnn.scale", "space.model.width", "space.epochs", "objectives",
    "objectives.flops", "limits", "limits.flops_pct", "limits.bytes", "search", "search.trials",
    "search.seed", "search.confirm", "search.early_stopping", "search.start_from",
    "search.early_stopping.rungs", "resources", "resources.cpus", "resources.gpus",
    "resources.memory", "resources.custom", "tracking", "tracking.uri", "paper", "paper.rows",
    "bitfront_search", "", ".", "a..b", "x.y.z", "é", "task.model.name.x",
)  # fmt: skip


Finding = dict[str, Any]


class Hang(BaseException):
    """More processor time than a case may take."""


# --- what is fuzzed -----------------------------------------------------------------------------


class Bench:
    """Healthy files of every kind in one folder, made once, and cases that damage copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.case = folder / f"case-{os.getpid()}"

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, text in YAMLS.items():
            (self.folder / f"{name}.yaml").write_text(text)
        _make_packed(self.folder)
        _make_searches(self.home, self.folder)
        assert _quiet(["export", "plain", "--knee", "-o", str(self.folder / "recipe.yaml"),
                       "--home", str(self.home)])[0] == 0  # fmt: skip

    def warm_up(self, kind: str) -> None:
        """Load what the first case would load, so that no case is charged for it."""
        import bitfront.trainables.selectors  # noqa: F401

        _quiet(["validate", str(self.folder / "full.yaml")])
        if kind == "packed":
            for network in sorted(self.folder.glob("packed-*.safetensors")):
                _called(network)  # compiles its kernels, where no cache has them yet
            healthy = str(next(self.folder.glob("packed-*.safetensors")))
            for option, name in DEPLOYED:
                out = str(self.folder / f"warm-{name}")
                _quiet(["deploy", healthy, option, out, "--examples", "2"])
        if kind in ("stored", "ledgers"):
            at = ["--home", str(self.home)]
            _quiet(["front", "healthy", *at])
            _quiet(["report", "healthy", "-o", str(self.folder / "warm.html"), *at])
            _quiet(["figure", "healthy", "-o", str(self.folder / "warm.png"), *at])

    def run(self, kind: str, rng: random.Random) -> Iterator[list[str] | Callable[[], Any]]:
        """Damage something; then what is to be tried, command lines mostly."""
        shutil.rmtree(self.case, ignore_errors=True)
        self.case.mkdir()
        yield from getattr(self, kind)(rng)

    def yamls(self, rng: random.Random) -> Iterator[Any]:
        if rng.random() < 0.2:
            file = self.case / "recipe.yaml"
            file.write_bytes(mangled_yaml((self.folder / "recipe.yaml").read_text(), rng))
            yield ["train", str(file), "--quiet", "-o", str(self.case / "out")]
            return
        text = YAMLS[rng.choice(("plain", "plain", "full", "robust"))]
        file = self.case / "search.yaml"
        file.write_bytes(mangled_yaml(text, rng))
        yield ["validate", str(file), *rng.choice(([], ["--json"]))]

    def sets(self, rng: random.Random) -> Iterator[Any]:
        value = rng.choice((rng.choice(SPECIALS), _flow(rng.choice(VALUES)), _flow(_random(rng))))
        if rng.random() < 0.1:
            key = rng.choice(("depth", "width", "x", ""))
            odd = rng.choice(
                ("", "²", "1x2", "3x32x32", "9" * 400, "x" * 5000, "999999999", "1x²x3")
            )
            yield ["cost", "mlp", rng.choice((f"--set={key}={value}", f"--shape={odd}",
                                              f"--plan={odd}", f"--plan=front:{odd}",
                                              f"--classes={odd}", f"--prune={odd}"))]  # fmt: skip
            return
        key = rng.choice(KEYS)
        text = rng.choice((f"{key}={value}", f"{key}={value}", f"{key}{value}"))
        yield ["validate", str(self.folder / f"{rng.choice(list(YAMLS))}.yaml"), "--set", text]

    def packed(self, rng: random.Random) -> Iterator[Any]:
        source = rng.choice(sorted(self.folder.glob("packed-*.safetensors")))
        file = self.case / "packed.safetensors"
        if rng.random() < 0.4:
            file.write_bytes(mangled_bytes(source.read_bytes(), rng))
        else:
            _mangle_tensors(source, file, rng)
        yield ["mask", str(file), *rng.choice(([], ["--json"]))]
        yield lambda: _called(file)
        if rng.random() < 0.1:
            yield ["figure", str(file), "--kind", "masks", "-o", str(self.case / "masks.png")]
        if rng.random() < 0.2:
            option, name = rng.choice(DEPLOYED)
            yield ["deploy", str(file), option, str(self.case / name), "--examples", "2"]
        if rng.random() < 0.05:
            yield ["bench", str(file), "--seconds", "1"]
        yield lambda: _load(file)
        key = rng.choice(("task.loss.distill.teacher", "task.pretrain.checkpoint"))
        yield ["validate", str(self.folder / "full.yaml"), "--set", f"{key}={file}"]

    def stored(self, rng: random.Random) -> Iterator[Any]:
        home = self._copied(rng)
        files = [f for f in sorted(home.rglob("*")) if f.is_file() and f.name != "ledger.db"]
        files = [f for f in files if f.parent.name != "healthy"]
        file = rng.choice([f for f in files if f.name in STORED] * 2 + files)
        text = file.read_bytes().decode("utf-8", "replace")
        if rng.random() < 0.05:
            file.unlink()
            rng.choice((file.mkdir, lambda: file.symlink_to("nowhere"), lambda: None))()
        elif file.suffix in (".yaml", ".yml"):
            file.write_bytes(mangled_yaml(text, rng))
        elif file.suffix in (".json", ".jsonl") and "\n{" not in text:
            file.write_bytes(mangled_json(text, rng))
        else:
            file.write_bytes(mangled_bytes(file.read_bytes(), rng))
        yield from self._looked_at(home, rng)

    def ledgers(self, rng: random.Random) -> Iterator[Any]:
        home = self._copied(rng)
        mangle_ledger(home / "plain" / "ledger.db", rng)
        yield from self._looked_at(home, rng)

    def _copied(self, rng: random.Random) -> Path:
        home = self.case / "home"
        shutil.copytree(self.home, home)
        if rng.random() < 0.5:  # a ledger that is named
            (home / "plain" / "ledger.json").unlink()
        else:
            url = f"sqlite:///{home / 'plain' / 'ledger.db'}"
            (home / "plain" / "ledger.json").write_text(json.dumps({"url": url}))
        return home

    def _looked_at(self, home: Path, rng: random.Random) -> Iterator[Any]:
        at = ["--home", str(home)]
        out = str(self.case / "out")
        yield lambda: _status_lists_the_healthy(at)
        yield ["front", "plain", *rng.choice(([], ["--json"], ["--wide", "--plot"])), *at]
        yield ["front", "plain", "--csv", *at]
        yield rng.choice(
            (["compare", "plain", "healthy", *at], ["compare", "healthy", "plain", *at])
        )
        yield ["export", "plain", *rng.choice((["--knee"], ["--all"], ["--budget", "60%"],
                                               ["--min-accuracy", "0.2"], ["--trial", "t3"])),
               "-o", out + rng.choice((".yaml", "")), *at]  # fmt: skip
        yield lambda: _page(home)
        yield ["resume", "plain", *at]
        if rng.random() < 0.25:
            kind = rng.choice(("front", "layers", "hypervolume", "masks"))
            yield ["figure", "plain", "--kind", kind, "-o", f"{out}.png", *at]
        if rng.random() < 0.15:
            yield ["report", "plain", "-o", f"{out}.html", *at]
        yield lambda: _extras(home)


DEPLOYED = (("--torch-export", "net.pt2"), ("--c", "net-c"), ("--onnx", "net.onnx"),
            ("--openvino", "net.xml"))  # fmt: skip
STORED = ("search.yaml", "ledger.json", "identity", "lock", "finals.jsonl", "exhausted")


def _flow(value: Any) -> str:
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "{a: " * 100


def _random(rng: random.Random) -> Any:
    try:
        return mangled_data({"a": [1, {"b": 2.5}], "float": [0, 1], "max": 3}, rng)
    except RecursionError:  # too deep to be copied
        return [[[]]]


def _make_packed(folder: Path) -> None:
    """A binary network, one with scales and thresholds, and pruned ones."""
    import torch

    from bitfront.trainables import packed
    from bitfront.trainables.task import Task, TrialSpec
    from bitfront.trainables.training.network import Network

    mlp = {"name": "mlp", "depth": 3, "width": 21}
    narrow = {"name": "cresnet", "depth": 8, "width": 8}
    cases: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
        ("bnn", mlp, "BW", "body", {}),
        ("react", narrow, "ABWFBA", "body", {"scale": "learned"}),
        ("edge-popup", mlp, "WWWW", "all", {"rate": 0.5}),
        ("edge-popup", mlp, "WWWW", "all", {"rate": 0.99, "p": 0.5}),
        ("bnn", narrow, "BBBBBB", "body", {"scale": "channel"}),
        ("bnn", mlp, "BBBB", "all", {"scale": "layer"}),
    ]
    torch.manual_seed(0)
    for number, (method, model, plan, scope, params) in enumerate(cases):
        task = Task.model_validate({"dataset": "digits", "model": model, "binarize": scope})
        spec = TrialSpec(task=task, method=method, params=params, plan=plan)
        path = folder / f"packed-{number}.safetensors"
        packed.save(Network(spec), spec, path, {"test_accuracy": 0.5})


def _make_searches(home: Path, folder: Path) -> None:
    """A search with made-up results and everything a folder can hold, and a healthy one."""
    from bitfront.dashboards.search_files import PICTURES
    from bitfront.search.config.load import load_text
    from bitfront.search.ledger.folder import SearchFolder, pretrained_folder, selections_folder
    from bitfront.search.ledger.ledger import Ledger
    from bitfront.search.recipes.finals import FinalTraining, note_finals
    from bitfront.search.session.selection import write_selection
    from bitfront.trainables.files import write_atomically
    from bitfront.trainables.selectors import SelectionSpec, select
    from bitfront.trainables.selectors.selection import store

    for name in ("plain", "healthy"):
        config, space = load_text(YAMLS["plain"], "plain.yaml", name=name)
        here = SearchFolder(home / name)
        write_atomically(here.config_file, config.dump())
        ledger = Ledger(here.ledger_url, config, space)
        rng = random.Random(name)
        for number in range(10):
            entry = ledger.ask()
            assert entry is not None
            curve = [
                {"epoch": e, "train_loss": 2.0 / e, "val_accuracy": rng.random(), "seconds": 0.1}
                for e in range(1, 4)
            ]
            if number == 4:
                ledger.tell(
                    entry.id, TrialState.FAILED, failure="nan", message="made up", history=curve[:1]
                )
            elif number == 6:
                ledger.tell(
                    entry.id, TrialState.STOPPED, {**curve[1], "stopped_at": 0.3}, curve[:2]
                )
            elif number < 9:
                ledger.tell(entry.id, TrialState.COMPLETE, curve[-1], curve)
        ledger.storage.remove_session()
        ledger.storage._backend.engine.dispose()  # type: ignore[attr-defined]
        assert here.identity
    here = SearchFolder(home / "plain")
    entry = next(iter(ledger.entries.values()))
    final = FinalTraining(
        recipe="plain-1", trial=entry.id, method="bnn", plan=entry.spec.plan, seed=0, epochs=3,
        checkpoint=str(folder / "packed-2.safetensors"), seconds=1.0, ended=2.0,
        metrics={"test_accuracy": 0.5},
    )  # fmt: skip
    note_finals(here, [final, final])
    (here.path / "exhausted").touch()
    (here.path / "lock").write_text('{"host": "here", "pid": 1}')
    here.set_ledger_url(f"sqlite:///{here.path / 'ledger.db'}")
    selection = select(SelectionSpec(selector="first", task=entry.spec.task))
    store(selection, selections_folder(home))
    write_selection(selection, here.path, PICTURES)
    pretrained_folder(home).mkdir()
    shutil.copy(
        folder / "packed-0.safetensors", pretrained_folder(home) / "pretraining.safetensors"
    )
    for suffix in ("csv", "html", "json"):
        (here.path / f"front.{suffix}").write_text("trial,method\n")


def _mangle_tensors(source: Path, out: Path, rng: random.Random) -> None:
    """A file whose checksum is right and whose content is not."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    from bitfront.trainables import packed

    with safe_open(str(source), framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    for _ in range(rng.choice((1, 1, 2))):
        key = rng.choice(sorted(tensors) or [""])
        kind = rng.randrange(9)
        if kind == 0:
            tensors.pop(key, None)
        elif kind == 1 and tensors:
            tensors[f"{key}{rng.choice(('.x', '', '0'))}"] = torch.zeros(rng.choice((0, 1, 7)))
        elif kind == 2 and tensors:
            tensors[key] = tensors[key].flatten()[: rng.choice((0, 1, 3))].clone()
        elif kind == 3 and tensors:
            dtype = rng.choice((torch.float16, torch.int64, torch.uint8, torch.bool, torch.float64))
            tensors[key] = tensors[key].to(dtype)
        elif kind == 4 and tensors:
            tensors[key] = torch.full_like(tensors[key], rng.choice((0, 1, 200)))
        elif kind == 5:
            name = rng.choice(sorted(metadata))
            metadata[name] = rng.choice(("", "x", "{", "null", "[]", "2", "9" * 400, "[" * 5000))
        elif kind == 6:
            metadata.pop(rng.choice(sorted(metadata)))
        else:
            name = rng.choice(("spec", "spec", "spec", "notes"))
            with contextlib.suppress(ValueError, RecursionError):
                text = mangled_json(metadata.get(name, "{}"), rng).decode("utf-8", "replace")
                metadata[name] = text
    if rng.random() < 0.95:
        metadata.pop("sha256", None)
        metadata["sha256"] = packed._digest(tensors, metadata)
    save_file(tensors, out, metadata)


def _status_lists_the_healthy(at: list[str]) -> tuple[int, str, str]:
    code, out, error = _quiet(["status", *at])
    if "healthy" not in out:
        raise AssertionError(f"status does not list the healthy search: {out[:300]} {error[:300]}")
    _quiet(["status", "--json", *at])
    return code, out, error


def _called(file: Path) -> tuple[int, str, str]:
    """A network on packed bits, and the same one in torch."""
    import torch

    import bitfront as bf
    from bitfront.trainables.errors import UserError
    from bitfront.trainables.runtime.network import an_example

    try:
        network = bf.load(file)
    except UserError as error:
        return 2, "", str(error)
    x = an_example(network.dataset, 3)
    with torch.no_grad():
        found, wanted = network(x), network.network(x)
    assert torch.allclose(found, wanted, rtol=0, atol=0, equal_nan=True), "not the bits of torch"
    return 0, "", ""


def _page(home: Path) -> tuple[int, str, str]:
    from bitfront.dashboards.pages.server import HomeSource

    source = HomeSource(home)
    source.searches()
    found = source.look("plain")
    return 0, found if isinstance(found, str) else "", ""


def _load(file: Path) -> tuple[int, str, str]:
    """What a notebook does with a packed network."""
    import bitfront as bf

    try:
        bf.load(file, runtime="torch")
    except bf.UserError as error:
        return 2, "", f"{error.message}\n{error.hint or ''}"
    return 0, "", ""


def _extras(home: Path) -> tuple[int, str, str]:
    """What a driver tells MLflow of a search besides its trials."""
    from bitfront.search.ledger.folder import SearchFolder
    from bitfront.search.tracking.extras import extras_of

    extras_of(SearchFolder(home / "plain"), [])
    return 0, "", ""


# --- one case -----------------------------------------------------------------------------------


def _quiet(arguments: list[str]) -> tuple[int, str, str]:
    """(exit code, output, errors) of a command line, in this process."""
    from bitfront.cli import main

    out, error = _Printed(), _Printed()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code = main(arguments)
        except SystemExit as left:  # of argparse
            code = left.code if isinstance(left.code, int) else 1
    return code, out.text, error.text


class _Printed(io.TextIOWrapper):
    """Takes what a terminal takes, and nothing else."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self._bytes.getvalue().decode()


def complaint(code: int, out: str, error: str) -> str | None:
    """What is wrong with an answer."""
    if "Traceback (most recent call last)" in error:
        return "traceback: " + error.strip().splitlines()[-1][:300]
    if code == 2 and not error.strip():
        return "exit code 2 without a word"
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if any(len(line) > LONGEST_LINE for line in error.splitlines()):
        return f"a message of {len(error):,} characters"
    caught = NET.search(out) or NET.search(error)
    return f"caught in a net: {(out + error)[caught.start() :][:300]}" if caught else None


def nothing_starts(kind: str) -> None:
    """`resume` and `train` end where training would begin."""
    from bitfront.trainables.errors import UserError
    from bitfront.verbs.final import train

    def would_train(*args: Any, **kwargs: Any) -> Any:
        raise UserError("would train")

    train.train_recipe = would_train  # type: ignore[attr-defined]
    if kind in ("stored", "ledgers"):
        from bitfront.search.cluster import tuner
        from bitfront.search.pictures import NO_PICTURES
        from bitfront.verbs import launch

        tuner.run_trials = would_train
        launch.PICTURES = NO_PICTURES  # type: ignore[attr-defined]


def try_case(bench: Bench, kind: str, seed: int, number: int) -> tuple[list[Finding], int]:
    """Findings of one case and the kB it took; every case can be repeated alone."""
    rng = random.Random(f"{seed}/{kind}/{number}")
    findings: list[Finding] = []
    before = _forget_peak()
    try:
        for step in bench.run(kind, rng):
            name = "a function" if callable(step) else " ".join(step)[:200]
            began = time.process_time()
            try:
                with _time_limit():
                    wrong = complaint(*(step() if callable(step) else _quiet(step)))
            except Hang:
                wrong = f"more than {CPU_SECONDS:g} s"
            except AssertionError as error:
                wrong = str(error)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                last = traceback.format_exc().strip().splitlines()
                wrong = f"escaped: {type(error).__name__}: {' | '.join(last[-5:])[:600]}"
            if wrong is not None:
                findings.append({"kind": kind, "case": number, "step": name, "wrong": wrong,
                                 "seconds": time.process_time() - began})  # fmt: skip
    except (OSError, ValueError, UnicodeError) as error:  # a damage that cannot be written
        if not isinstance(error, UnicodeError | ValueError):
            raise
    grown = _peak_kb() - before
    if grown > GROWTH_KB:
        findings.append({"kind": kind, "case": number, "step": "", "wrong": f"{grown:,} kB"})
    return findings, grown


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _forget_peak() -> int:
    """What is held now, from which the next peak is counted."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_kb()


def _peak_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


# --- workers ------------------------------------------------------------------------------------


def work(folder: Path, kind: str, seed: int, first: int, count: int) -> None:
    """A batch in a process of its own; a line of JSON after every case."""
    os.environ["MPLBACKEND"] = "agg"
    said = os.fdopen(os.dup(1), "w")
    os.chdir(folder)
    # A bomb ends the case, not the machine.
    resource.setrlimit(resource.RLIMIT_DATA, (6_000_000_000, resource.RLIM_INFINITY))
    nothing_starts(kind)
    bench = Bench(folder)
    bench.warm_up(kind)
    for number in range(first, first + count):
        began = time.process_time()
        findings, grown = try_case(bench, kind, seed, number)
        told = {"case": number, "seconds": time.process_time() - began, "kb": grown}
        print(json.dumps({**told, "findings": findings}), file=said, flush=True)
    shutil.rmtree(bench.case, ignore_errors=True)


class Worker:
    """A batch on its way; a case that ends or silences its process is a finding."""

    def __init__(self, folder: Path, kind: str, seed: int, first: int, count: int) -> None:
        self.folder, self.kind, self.seed = folder, kind, seed
        self.next, self.end = first, first + count
        self.cases: list[dict[str, Any]] = []
        self._out = folder / f"{kind}-{first}.out"
        self._log = folder / f"{kind}-{first}.log"
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.fuzz", "--work", str(self.folder)]
        command += ["--kind", self.kind, "--seed", str(self.seed)]
        command += ["--first", str(self.next), "--count", str(self.end - self.next)]
        with self._out.open("a") as out, self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log)
        self._heard = time.monotonic()

    def done(self) -> bool:
        self._listen()
        code = self.process.poll()
        silent = time.monotonic() - self._heard > SILENCE
        if code is None and not silent:
            return False
        if code is None:
            self.process.kill()
            self.process.wait()
        self._listen()
        if self.next < self.end:
            last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
            wrong = "hang" if code is None else f"the process ended with {code}: {last}"
            found = {"kind": self.kind, "case": self.next, "step": "", "wrong": wrong}
            self.cases.append({"case": self.next, "seconds": 0.0, "kb": 0, "findings": [found]})
            self.next += 1
        if self.next < self.end:
            self._start()
            return False
        return True

    def _listen(self) -> None:
        whole = self._out.read_text().split("\n")[:-1]
        known = {case["case"] for case in self.cases}
        fresh = [c for line in whole if (c := json.loads(line))["case"] not in known]
        if fresh:
            self._heard = time.monotonic()
            self.cases += fresh
            self.next = max(case["case"] for case in fresh) + 1


def run_all(counts: dict[str, int], seed: int, processes: int, folder: Path) -> list[list[Any]]:
    """A row a kind: how many, and what was found."""
    Bench(folder).make()
    waiting = [
        (kind, first, min(BATCH[kind], count - first))
        for kind, count in counts.items()
        for first in range(0, count, BATCH[kind])
    ]
    running: list[Worker] = []
    cases: dict[str, list[dict[str, Any]]] = {kind: [] for kind in counts}
    while waiting or running:
        while waiting and len(running) < processes:
            kind, first, count = waiting.pop(0)
            running.append(Worker(folder, kind, seed, first, count))
        time.sleep(0.2)
        for worker in [w for w in running if w.done()]:
            running.remove(worker)
            cases[worker.kind] += worker.cases
            for case in worker.cases:
                for found in case["findings"]:
                    where = f"{found['kind']}:{found['case']}"
                    print(ascii(f"{where} {found['step']}"), ascii(found["wrong"]), sep="\n    ")
            sys.stdout.flush()
    return [[kind, *_row(cases[kind])] for kind in counts]


def _row(cases: list[dict[str, Any]]) -> list[Any]:
    findings = [f["wrong"] for case in cases for f in case["findings"]]
    hangs = sum(w.startswith(("more than", "hang")) for w in findings)
    large = sum(w.endswith(" kB") for w in findings)
    slowest = max((case["seconds"] for case in cases), default=0.0)
    peak = max((case["kb"] for case in cases), default=0)
    others = len(findings) - hangs - large
    return [len(cases), others, hangs, large, f"{slowest:.1f}", round(peak / 1000)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a slice of every kind")
    parser.add_argument("--kind", choices=COUNTS, help="this one only")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", metavar="KIND:N", help="repeat one case and show what it says")
    parser.add_argument("--work", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(Path(args.work), args.kind, args.seed, args.first, args.count)
        return 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        if args.case:
            return _repeat(Path(name), args.case, args.seed)
        counts = QUICK if args.quick else COUNTS
        counts = {args.kind: counts[args.kind]} if args.kind else counts
        began = time.monotonic()
        rows = run_all(counts, args.seed, args.processes, Path(name))
    from bitfront.terminal.tables import table

    headers = ["input", "cases", "tracebacks", "above 5 s", "above 1 GB", "slowest s", "peak MB"]
    print(table(headers, [[str(cell) for cell in row] for row in rows]))
    print(f"seed {args.seed}, {time.monotonic() - began:.0f} s")
    return int(any(row[2] or row[3] or row[4] for row in rows))


def _repeat(folder: Path, case: str, seed: int) -> int:
    kind, _, number = case.partition(":")
    bench = Bench(folder)
    bench.make()
    nothing_starts(kind)
    os.chdir(folder)
    for step in bench.run(kind, random.Random(f"{seed}/{kind}/{number}")):
        print(f"--- {'a function' if callable(step) else ' '.join(step)[:300]}")
        try:
            code, out, error = step() if callable(step) else _quiet(step)
        except BaseException:
            traceback.print_exc()
            continue
        print(f"{code}\n{out[:2000]}{error[:6000]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
