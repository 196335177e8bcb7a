"""The page of everything that has a name, written from the registries and the ready-made searches.
What each parameter means is in the YAML reference, which `search.config.reference` writes.

python -m bitfront.catalog_page > docs/catalog.md"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import yaml

from bitfront.dashboards.figures import FIGURES
from bitfront.search.samplers.registry import SAMPLERS
from bitfront.trainables.attacks import EVALUATION_ATTACKS, TRAINING_ATTACKS
from bitfront.trainables.costs import COSTS, cost_names
from bitfront.trainables.data import DATASETS
from bitfront.trainables.data.augmentations import AUGMENTATIONS
from bitfront.trainables.layers.diagnostics import DIAGNOSTICS
from bitfront.trainables.methods import METHODS
from bitfront.trainables.metrics import Metric
from bitfront.trainables.models import MODELS
from bitfront.trainables.papers import PAPERS, paper_of
from bitfront.trainables.selectors import SELECTORS
from bitfront.trainables.tasks import KINDS
from bitfront.verb_files import find_verbs, group_titles

INTRODUCTION = """\
# What there is

Written by `python -m bitfront.catalog_page` from the registries; a test keeps it true. Parameters
with their defaults and ranges are in [yaml.md](yaml.md), equations and papers in
[methods.md](methods.md). `bitfront methods`, `selectors`, `models` and `datasets` list the same in
the terminal.
"""

# Abilities that have no registry, since no single name in a YAML stands for them.
ABILITIES = {
    "levels of a layer": "`F` full precision, `S` that but pruned, `W` binary weights, `B` binary "
    "weights and activations, `A` with wrapping accumulators of any width too",
    "plans": "drawn per layer, block, stage or model; one part only; fixed; by a selector for a "
    "budget",
    "scales": "none, per layer, per output channel, as a power of two, learned",
    "starting points": "random weights; full-precision pretraining that is trained once and shared;"
    " a state dict; a file of an MLflow run; binary pretraining with `pretrain.binary_epochs`",
    "distillation": "soft targets for any network; Q, K, V similarities and hidden states for "
    "transformers (BiBERT); teachers: the shared pretraining, a packed checkpoint, a state dict, a "
    "recipe",
    "repeats": "a share of the trials repeats points with other seeds; points of the front have a "
    "mean, a spread and a probability to belong there",
    "early stopping": "at fractions of a trial's own schedule, ranked by layers of the front, with "
    "control trials",
    "warm start": "the front of another search, carried to another dataset or model by the position"
    " of layers",
    "ledger": "SQLite or any SQLAlchemy URL (`pip install 'bitfront[postgres]'`); resumed and "
    "extended after any crash",
    "clusters": "`ray up`, Kubernetes, SLURM, machines you have ([cluster.md](cluster.md)); "
    "`gpus: auto` packs trials by their memory",
    "final training": "several seeds, several workers, test accuracy, packed checkpoints that "
    "reload bit for bit, the rest in float16 with `--half`",
    "pictures": "a report that works offline, figures for papers, a live page, MLflow "
    "([pictures.md](pictures.md), [live.md](live.md))",
}


def catalog() -> str:
    """The page as Markdown."""
    return "\n".join(
        [
            INTRODUCTION,
            _methods(),
            _selectors(),
            _models(),
            _datasets(),
            _augmentations(),
            _costs(),
            _metrics(),
            _diagnostics(),
            _attacks(),
            _samplers(),
            _figures(),
            _papers(),
            _verbs(),
            _searches("searches", "Ready-made searches", "`bitfront run NAME` starts one."),
            _searches("teachers", "Recipes of teachers", "`loss.distill.teacher` may name one."),
            _section("What a search can do", ["", ""], ABILITIES.items()),
        ]
    )


def _methods() -> str:
    rows = [
        [f"`{name}`", "".join(method.levels), method.doc, _cited(method.paper)]
        for name, method in METHODS.items()
    ]
    return _section("Methods", ["method", "levels", "what it does", "paper"], rows)


def _selectors() -> str:
    rows = [
        [f"`{name}`", "yes" if selector.trained else "no", selector.doc, _cited(selector.paper)]
        for name, selector in SELECTORS.items()
    ]
    return _section("Selectors", ["selector", "trains first", "what it does", "paper"], rows)


def _cited(text: str) -> str:
    """A paper by its short name, which links to it."""
    paper = paper_of(text) if text else None
    if paper is None:
        return text
    told = f"{paper.short}, {paper.place}"
    return f"[{told}]({paper.link})" if paper.link else told


def _papers() -> str:
    rows = [
        [f"`{name}`", f"{p.authors}: *{p.title}*, {p.place}", f"<{p.link}>" if p.link else "-"]
        for name, p in PAPERS.items()
    ]
    note = (
        "Declared once, in `trainables/papers/`: methods and selectors name one by its key, and\n"
        "`paper.title` of a search may."
    )
    return _section("Papers", ["key", "paper", "link"], rows, note)


def _models() -> str:
    rows = [[f"`{name}`", model.doc, _words(model.params)] for name, model in MODELS.items()]
    note = "Any classifier of timm or torchvision is a model too: `timm/NAME`, `torchvision/NAME`."
    return _section("Models", ["model", "what it is", "parameters"], rows, note)


def _datasets() -> str:
    rows = [
        [
            f"`{name}`",
            info.kind,
            "x".join(map(str, info.shape)),
            f"{info.train_size:,}",
            "comes along" if info.embedded else "your files",
            info.source,
        ]
        for name, info in DATASETS.items()
    ]
    note = (
        "Data of your own are `my_data.py:load`, `folder:NAME:SIZE`, `hf:PATH` or `arrays:FILE`\n"
        "(docs/yaml.md), sequences `sequences:NAME`, K permuted tasks `permuted-mnist:K`.\n"
        "Nothing is downloaded: `bitfront datasets --json` says how to get one."
    )
    heads = ["dataset", "kind of task", "shape", "training examples", "from", "what it is"]
    return _section("Datasets", heads, rows, note)


def _metrics() -> str:
    kinds: dict[Metric, list[str]] = {}
    for _, kind in KINDS.items():
        for metric in kind.metrics:
            kinds.setdefault(metric, []).append(kind.name)
    rows = [
        [f"`{metric.name}`", metric.label, "more" if metric.maximize else "less", ", ".join(names)]
        for metric, names in kinds.items()
    ]
    return _section("Metrics", ["metric", "what it is", "better is", "kinds of task"], rows)


def _attacks() -> str:
    rows = [[f"`{name}`", "training", loss.doc] for name, loss in TRAINING_ATTACKS.items()]
    rows += [
        [f"`{name}`", "evaluation", f"{attack.title}: `{attack.metric}`"]
        for name, attack in EVALUATION_ATTACKS.items()
    ]
    return _section("Attacks", ["attack", "used in", "what it is"], rows)


def _augmentations() -> str:
    rows = [
        [f"`{name}`", " ".join((function.__doc__ or "").split())]
        for name, function in AUGMENTATIONS.items()
    ]
    note = "`task.augmentation`; whole batches, on the device that trains."
    return _section("Augmentations", ["augmentation", "what it does"], rows, note)


def _costs() -> str:
    rows = [[f"`{name}`", COSTS.get(name).label, COSTS.get(name).doc] for name in cost_names()]
    note = (
        "Exact before training; each may be an objective or a limit. What levels count is in\n"
        "[internals.md](internals.md#costs)."
    )
    return _section("Costs", ["cost", "what it is", "what it counts"], rows, note)


def _diagnostics() -> str:
    rows = [[f"`{name}`", diagnostic.doc] for name, diagnostic in DIAGNOSTICS.items()]
    note = "Logged after every epoch, over the binary and pruned layers they apply to."
    return _section("Diagnostics", ["diagnostic", "what it is"], rows, note)


def _samplers() -> str:
    rows = [[f"`{name}`", sampler.doc] for name, sampler in SAMPLERS.items()]
    return _section("Samplers", ["sampler", "what it does"], rows)


def _figures() -> str:
    rows = [[f"`{name}`", figure.doc] for name, figure in FIGURES.items()]
    note = "`bitfront figure NAME --kind KIND` writes one as pdf, svg or png."
    return _section("Figures", ["kind", "what it shows"], rows, note)


def _verbs() -> str:
    titles = group_titles()
    rows = [
        [f"`bitfront {verb.name}`", verb.help, titles[verb.group]] for verb in find_verbs().values()
    ]
    return _section("Verbs", ["verb", "what it does", "to"], rows)


def _searches(folder: str, title: str, note: str) -> str:
    """A table of the YAML files in a folder of `spaces`."""
    rows = []
    for file in sorted((resources.files("bitfront.spaces") / folder).iterdir(), key=str):
        data: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        task = data["spec"]["task"] if "spec" in data else data["task"]
        model = task["model"] if isinstance(task["model"], str) else task["model"]["name"]
        trained = f"`{model}` on `{task['dataset']}`"
        rows.append([f"`{data['name']}`", data.get("description", ""), trained])
    return _section(title, ["name", "what it is", "task"], rows, note)


def _section(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = ""
) -> str:
    """A heading, a sentence and a table; a column without any text is left out."""
    texts = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    shown = [i for i in range(len(heads)) if any(row[i] for row in texts)]
    lines = [f"## {title}", "", *([note, ""] if note else [])]
    for row in ([*heads], ["---"] * len(heads), *texts):
        lines.append(f"| {' | '.join(row[i] for i in shown)} |")
    return "\n".join(lines) + "\n"


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(catalog(), end="")
