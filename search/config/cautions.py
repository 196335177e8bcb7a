"""Warnings: what is no mistake in a search but probably not what the user wants. They are printed
when a search is validated, previewed or started, and never stop it."""

from __future__ import annotations

from bitfront.search.config.checks.paper import row_problem
from bitfront.search.config.known import believes
from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.sections.inheriting import why_not
from bitfront.spaces.space import FreePlan, Space
from bitfront.trainables.data import DATASETS, dataset_title, missing_test, train_examples
from bitfront.trainables.data.own.look import looked_at
from bitfront.trainables.own_code import shown
from bitfront.trainables.runtime.machine import KERNELS, cpu_name, has_kernels


def cautions(config: SearchConfig, space: Space) -> list[str]:
    """A sentence for each thing that the user may not have meant."""
    found = [*_data(config), *_test_part(config), *_subset(config), *_one_level(space)]
    found += [*_unheard(config, space), *_disinherited(config, space)]
    return [*found, *_rows(config, space), *_device(space)]


def _device(space: Space) -> list[str]:
    """Times of this machine that were measured with other versions than those there are now."""
    device = space.device
    if device is None or device.cpu != cpu_name():
        return []
    kernels = KERNELS if has_kernels() else 0
    if all(times.kernels == kernels for times in device.networks.values()):
        return []
    return [
        f"device table {device.name} was measured with other kernels than there are now: "
        "bitfront bench measures again"
    ]


def _test_part(config: SearchConfig) -> list[str]:
    missing = missing_test(config.task.dataset, config.task.data_dir)
    if missing is None:
        return []
    if DATASETS.get(config.task.dataset).own is not None:
        name = dataset_title(config.task.dataset)
        return [
            f"{name} has no test part: bitfront train will report the validation part only; to add "
            "one, return (train, test) or (train, val, test)"
        ]
    return [
        f"{config.task.dataset} has no test part: {missing}. The search does without it, "
        "bitfront train will not"
    ]


def _data(config: SearchConfig) -> list[str]:
    """What was noticed when data of the user's own were looked at."""
    found = looked_at(config.task.dataset)
    return [] if found is None else list(found.notes)


def _subset(config: SearchConfig) -> list[str]:
    wanted = config.task.subset
    if wanted is None:
        return []
    there = train_examples(config.task.dataset, config.task.data_dir)
    if there is None or wanted <= there:
        return []
    name = dataset_title(config.task.dataset)
    return [
        f"task.subset: {wanted:,} examples of {name}, which has {there:,}: all of them are used"
    ]


def _one_level(space: Space) -> list[str]:
    plan = space.plan
    if not isinstance(plan, FreePlan) or len(plan.levels) > 1:
        return []
    (level,) = plan.levels
    return [
        f"space.plan: every layer is {level}, the plan decides nothing: give two levels, for "
        f"example [F, B], or write plan: {level}"
    ]


def _unheard(config: SearchConfig, space: Space) -> list[str]:
    """Priors and advice that the sampler does not use."""
    if believes(config.search.sampler):
        return []
    told = {"space": space.priors() and "priors", "search.advice": space.advice and "advice"}
    name = shown(config.search.sampler)
    return [
        f"{key}: the sampler {name} does not use {what}; free-cost, the default, does"
        for key, what in told.items()
        if what
    ]


def _disinherited(config: SearchConfig, space: Space) -> list[str]:
    """Methods whose trials do not inherit."""
    if config.search.inherit is None:
        return []
    told = {str(name): why_not(str(name)) for name in space.method.values}
    return [
        f"search.inherit: trials of {shown(name)} are trained from scratch, since {why}"
        for name, why in told.items()
        if why is not None
    ]


def _rows(config: SearchConfig, space: Space) -> list[str]:
    """Rows of a paper that a change of the space has left out."""
    problems = []
    for row in config.paper.rows if config.paper is not None else []:
        problem = "" if row.reason else row_problem(config, space, row)
        problems += [f"{row.label}: {problem}"] if problem else []
    if not problems:
        return []
    more = ", ..." if len(problems) > 1 else ""
    count = (
        "1 row of the paper is" if len(problems) == 1 else f"{len(problems)} rows of the paper are"
    )
    return [f"{count} not run, being no point of this space: {problems[0]}{more}"]
