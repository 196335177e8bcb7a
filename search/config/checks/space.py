"""Checks of a space against its network: plans that do not fit, layers a method prunes to nothing,
selectors and attacks that cannot work, checkpoints and teachers that do not match. The network is
traced here, on the meta device; nothing is trained."""

from __future__ import annotations

import itertools
from dataclasses import replace

from pydantic import ValidationError

from bitfront.search.config.bounds import check_limits, extreme_specs, further_bounds
from bitfront.search.config.errors import KeyProblem, Problems, without_key
from bitfront.search.config.known import adds_layer_costs
from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.plans import ADVICE, PLAN, START
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.settle import is_file
from bitfront.search.config.space import TASK_KEYS
from bitfront.spaces.space import FixedPlan, FreePlan, OnlyPlan, PlanSpace, Selecting, Space, ends
from bitfront.trainables.cost import CostTable, task_cost_table
from bitfront.trainables.data import DATASETS
from bitfront.trainables.errors import UserError, did_you_mean
from bitfront.trainables.methods import METHODS
from bitfront.trainables.parameters import Choice
from bitfront.trainables.plan import check_plan
from bitfront.trainables.selectors import SELECTORS
from bitfront.trainables.structure.scope import FIRST, LAST, SHORTCUT
from bitfront.trainables.task import Task, TrialSpec, with_overrides
from bitfront.trainables.training.adversarial import check_attack

# Keys that decide whether and how a trial is trained against attacks.
ATTACK_DECIDERS = (
    "attack.train",
    "attack.shrink",
    "augmentation",
    "loss.distill.kind",
    "pretrain.epochs",
)
# Parameters of methods that decide how many weights a layer keeps.
PRUNING = ("rate", "p", "layers", "rounding")


def check_space(config: SearchConfig, space: Space, problems: Problems) -> None:
    """Note in `problems` what is wrong between the space and its network. Of plans, selectors,
    pruning and attacks only the first mistake is noted: the others may follow from it."""
    before = len(problems)
    with problems.at("space"):
        _check_plan(space)
        for using in space.selecting():
            _check_selecting(space, using)
        _check_pruning(config, space)
        _check_attacks(space)
    if len(problems) > before:
        return
    _check_files(config, space, problems)
    before = len(problems)
    for index, cost in enumerate(space.own_costs):
        with problems.at("costs", index):
            further_bounds(replace(space, own_costs=(cost,), device=None))
    with problems.at(*PLAN):
        extreme_specs(space)
    if len(problems) > before:
        return
    with problems.at("limits"):
        check_limits(config, space)


def _check_plan(space: Space) -> None:
    """Raise KeyProblem unless the plan fits the smallest and the largest network of the space."""
    plan = space.plan
    drawn = any(key.startswith("model.") for key in space.overrides)
    if isinstance(plan, OnlyPlan) and drawn:
        names = {tuple(plan.names(task_cost_table(task))) for task in space.extreme_tasks()}
        if len(names) > 1:
            raise KeyProblem(PLAN, f"which {plan.per}? they change with the model")
    for task in space.extreme_tasks():
        try:
            table = task_cost_table(task)
        except UserError as error:
            raise _unbuilt(error) from None
        if isinstance(plan, FixedPlan) and any(m != "fp" for m in space.method.values):
            try:
                check_plan(_whole_plan(plan, table), table.plan_layers)
            except UserError as error:
                raise KeyProblem(PLAN, str(error).removeprefix("plan: ")) from None
        if not table.plan_layers and isinstance(plan, FreePlan):
            raise KeyProblem(PLAN, _no_layers(table))
        if isinstance(plan, FreePlan):
            _check_priors(plan, table)
        hidden = [layer.name for layer in table.plan_layers if not layer.accumulates]
        if hidden and isinstance(plan, FreePlan) and "A" in plan.levels:
            raise KeyProblem(
                PLAN,
                f"level A is not for {hidden[0]}, which projects the inputs of an attention: leave "
                "A out, or keep such layers in full precision (task.keep_full)",
            )


def _check_priors(plan: FreePlan, table: CostTable) -> None:
    """Raise KeyProblem where a part that is believed to have a level is not there."""
    parts = dict.fromkeys(plan.groups(table))
    for part in plan.priors:
        if part not in parts:
            hint = did_you_mean(part, parts)
            raise KeyProblem((*PLAN, "prior", part), f"no {plan.per} of that name, {hint}")


def _no_layers(table: CostTable) -> str:
    """The mistake that a network has no layer to plan, with what its layers are for where that is
    known."""
    roles = {layer.name: layer.role for layer in table.layers if layer.weights}
    if not roles:
        return "the model has no layer to plan: no convolution or linear layer is called"
    known = [f"{name} ({role or 'fixed'})" for name, role in roles.items()]
    told = f": {', '.join(known[:6])}{', ...' if len(known) > 6 else ''}"
    message = "the model has no layer to plan" + (told if any(roles.values()) else "")
    if not any(roles.values()) or set(roles.values()) & {FIRST, LAST, SHORTCUT}:
        message += "; task.binarize: all plans every layer"
    return message


def _unbuilt(error: UserError) -> KeyProblem:
    """The mistake that keeps a network from being built or traced, at its key."""
    for key in ("binarize", "keep_full"):
        if error.message.startswith(f"{key}: "):
            return KeyProblem(("task", key), without_key(str(error), ("task", key)))
    return KeyProblem(("task", "model"), str(error))


def _whole_plan(plan: PlanSpace, table: CostTable) -> str:
    """The plan, where there is only one; else the one in which every layer has binary weights."""
    if isinstance(plan, FixedPlan):
        return plan.make(table, lambda _name, _domain: None, 0)
    return "W" * len(table.plan_layers)


def _check_pruning(config: SearchConfig, space: Space) -> None:
    """Raise KeyProblem unless every layer keeps at least one weight at the ends of rates and
    exponents, and the sampler can compute the cost of what it proposes."""
    free = isinstance(space.plan, FreePlan) and space.plan.per != "model"
    for name in map(str, space.method.values):
        domains = space.method_params.get(name, {})
        rates = [key for key in PRUNING if key in domains]
        for values in itertools.product(*(ends(domains[key]) for key in rates)):
            method = METHODS.get(name)(dict(zip(rates, values, strict=True)))
            for task in space.extreme_tasks():
                table = task_cost_table(task)
                try:
                    kept = method.kept(table.sizes(_whole_plan(space.plan, table)))
                except UserError as error:
                    key = f"{name}.{(rates or ['rate'])[0]}"
                    raise KeyProblem(("space", key), str(error)) from None
                if kept is None:  # the method prunes nothing
                    break
                if free and adds_layer_costs(config.search.sampler):
                    raise KeyProblem(
                        ("search", "sampler"),
                        f"{config.search.sampler} adds up the costs of layers, but what {name} "
                        "keeps of one depends on the others: plan every layer alike, or take tpe",
                    )


def _check_attacks(space: Space) -> None:
    """Raise KeyProblem for a method and an attack that do not go together. Every method is checked:
    some train against attacks whatever the task says."""
    changed = {k: ends(d) for k, d in space.overrides.items() if k in ATTACK_DECIDERS}
    for each in itertools.product(*changed.values()):
        try:
            task = with_overrides(space.task, dict(zip(changed, each, strict=True)))
        except ValidationError as error:
            raise KeyProblem(("task", "attack"), first_mistake(error)[1]) from None
        for name in map(str, space.method.values):
            try:
                check_attack(TrialSpec(task=task, method=name, plan=""))
            except UserError as error:
                key, _, text = str(error).partition(": ")
                raise KeyProblem(("task", *key.split(".")), text) from None


def _check_selecting(space: Space, using: Selecting) -> None:
    """Raise KeyProblem unless the network that a selector looks at and all networks of the space
    have the same number of layers, and data of the same kind: a selector ranks the layers of one
    network."""
    path = PLAN if space.start_from is None or using is not space.start_from.using else START
    path = path if space.advice is None or using is not space.advice.using else ADVICE
    try:
        looked_at = using.task(space.task)
        dataset = DATASETS.get(looked_at.dataset)
    except UserError as error:
        raise KeyProblem((*path, "trained_on", "dataset"), str(error)) from None
    except (ValidationError, KeyError, TypeError) as error:
        known = [*TASK_KEYS, "dataset", "subset", "data_dir"]
        key, hint = str(next(iter(using.trained_on))), ""
        if isinstance(error, ValidationError):
            wrong, hint = first_mistake(error)
            key = ".".join(map(str, wrong))
        if key not in known:
            hint = f"unknown key, {did_you_mean(key, known)}"
        raise KeyProblem((*path, "trained_on", key), hint) from None
    kind = DATASETS.get(space.task.dataset).kind
    if dataset.kind != kind:
        message = f"{dataset.name} is for {dataset.kind}, not {kind}"
        raise KeyProblem((*path, "trained_on", "dataset"), message)
    if not any(SELECTORS.get(name).trained for name in using.names):
        return
    tasks = [looked_at, *space.extreme_tasks()]
    counts = {len(task_cost_table(task).plan_layers) for task in tasks}
    if len(counts) > 1:
        raise KeyProblem(
            path, f"a selector ranks one network, but there are some of {sorted(counts)} layers"
        )


def _check_files(config: SearchConfig, space: Space, problems: Problems) -> None:
    """Note a checkpoint or a teacher that does not fit every network that trials may have."""
    if is_file(config.task.pretrain.checkpoint):
        from bitfront.trainables.training.pretraining import check_checkpoint

        with problems.at("task", "pretrain", "checkpoint"):
            check_checkpoint(*space.extreme_tasks())
    for task in _distillations(space):
        from bitfront.trainables.training.distillation import check_teacher

        with problems.at("task", "loss", "distill"):
            check_teacher(task)


def _distillations(space: Space) -> list[Task]:
    """A task for each kind of distillation, length of pretraining and extreme network of the space
    in which a trial has a teacher."""
    given = space.task
    kinds = ends(space.overrides.get("loss.distill.kind", Choice((given.loss.distill.kind,))))
    lengths = ends(space.overrides.get("pretrain.epochs", Choice((given.pretrain.epochs,))))
    return [
        with_overrides(task, {"loss.distill.kind": kind, "pretrain.epochs": epochs})
        for kind in kinds
        if kind != "none"
        for epochs in lengths
        for task in space.extreme_tasks()
    ]
