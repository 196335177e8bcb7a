"""The sentences of docs/yaml.md that no declaration has; `reference` writes the page."""

from __future__ import annotations

EXAMPLE = """\
name: my-search
task:
  dataset: fashion-mnist
  model: {name: cresnet, depth: 8, width: 8}
  epochs: 5
  subset: 6000                            # examples; all of them when left out
  optimizer: {name: sgd, lr: 0.1, weight_decay: 1e-4}
space:
  method: [bnn, bnn++]
  plan: {per: layer, levels: [F, W, B]}
  model.width: [4, 8]
  optimizer.lr: {float: [0.03, 0.3], log: true}
  bnn++.mu: {schedule: {from: 5, to: {float: [10, 100], log: true}}}
objectives: {val_accuracy: max, flops: min}
limits: {flops_pct: 60}
search: {trials: 30, confirm: 0.2, early_stopping: true}
resources: {cpus: 1, gpus: 0}
"""

SPACE = """\
## `space`: what may change between trials

| key | value |
|---|---|
| `method` | a method, or a list of methods to choose among |
| `plan` | which layers are binary: see below |
| `METHOD.PARAMETER` | a parameter of one method; drawn only for trials of that method |
| `method.PARAMETER` | that of every method of the space that has it; a key of one method wins |
| `model.PARAMETER` | a parameter of the network; costs and the length of the plan follow it |
| TASK_KEYS | a part of the task |

A value is one of

| form | meaning |
|---|---|
| `3` | always this |
| `[a, b, c]` or `{choice: [a, b, c]}` | one of a list |
| `{float: [low, high]}`, with `log: true` | a number in a range, on a linear or log scale |
| `{float: [1e-4, 1], log: true, prior: 0.01, confidence: high}` | the same, where 0.01 is \
believed best |
| `{int: [low, high]}`, with `step: n` or `log: true` | a whole number |
| `search` | the range the method or model recommends for this parameter |
| `{schedule: {from: a, to: b, until: f, shape: s}}` | a path over fractions of training |

A `prior` may stand in every range and in `{choice: [a, b], prior: b}`, for `method` too. The
search begins there and looks near to it until trials say otherwise; nothing is excluded.
`confidence` is `low`, `medium` (the default) or `high`: the best value of a number is believed
within half, a quarter or an eighth of the range (on its scale), the named value of a choice is
twice, four or eight times as likely to be best as another. A prior that is wrong costs some
trials, the more the surer it was. Of the samplers `free-cost` uses it.

In a schedule each of `from`, `to`, `until` and `shape` may itself be a range or a list. It is short
for four parameters: `bnn++.mu: {schedule: {from: 5, to: 50}}` sets `mu_start` to 5 and `mu_end` to
50; `until` and `shape` are `mu_until` and `mu_shape`. A method has a schedule `x` where the table
of methods below has `x_start`.

A plan is one of

| form | meaning |
|---|---|
| `FBBF` | one letter per layer: F full precision, S that but pruned, W binary weights, B weights \
and activations, A with narrow accumulators too |
| `B` | one letter for every layer |
| `{per: layer, levels: [F, B]}` | a level drawn for every `layer`, `block`, `stage` or `model` |
| `{per: layer, prior: {head: F}, confidence: high}` | the same, where the layer `head` is \
believed to stay F on the front |
| `{only: block, level: W}` | one `layer`, `block` or `stage` binary, drawn; all others not |
| `{selector: mixbin-grad, budget: [80, 40], rule: at_least}` | by a selector, for % of the flops |

A plan in which every layer is F has nothing binary: its trial is one of the method `fp`, whichever
method was drawn, and tables show it as such.

A selected plan has these keys

| key | meaning |
|---|---|
| `selector` | one of `bitfront selectors`, or a list to choose among |
| `budget` | percent of the trial's own network in full precision (`flops_own_pct`), as MixBin \
counts it: a number, a list or a range |
| `rule` | `at_least`: stop before the flops fall below the budget; `nearest`: as near as it gets |
| `level` | of the chosen layers: `B` (the default) or `W` |
| `seeds` | draws of random and pseudo-random, a list; default: the search's seed |
| `params` | parameters of the selector, below |
| `trained_on` | changes of the task whose network the selector looks at: with \
`{dataset: cifar10}` it selects there, and trials train here |

A selector that looks at a trained network runs before the first trial, on the machines of the
trials; its order of layers serves all budgets and is kept for all searches of a home. Its scores
are in the search's folder and on the parent run: `selection-NAME.json`, `.csv`, `.html`, `.png`.
`search.start_from` begins a search over free plans with plans of a selector. `search.advice:
mixbin-grad` trains none of its plans: its order of layers is what the model of `free-cost` expects,
until trials say otherwise.
"""


DATA = """\
## Data of your own

| `task.dataset` | reads |
|---|---|
| `my_data.py:load`, `my_package.data:load` | what this function returns; `task.data` has its \
arguments |
| `folder:NAME:SIZE`, `folder:./birds:64` | images in `NAME/train/CLASS` and `NAME/test/CLASS`, or \
in `NAME/CLASS`, of which 20 % are then set aside for the test; NAME is a folder of the data \
directory or a path |
| `hf:PATH`, `hf:PATH:IMAGE_COLUMN:LABEL_COLUMN:SIZE` | a Hugging Face dataset that `save_to_disk` \
has written, where the library `datasets` is installed; nothing is downloaded |
| `arrays:FILE` | tensors `train.x`, `train.y`, `val.x`, ... of a safetensors file |

A function returns a part, `(train, test)`, `(train, val, test)` or a dict of parts with the keys
`train`, `val` and `test`. A part is a torch Dataset of (x, y), a list of such examples, a pair of
arrays or tensors, or a DataLoader. Integer targets are classes, counted from 0; float targets are
regression of one number or several. A validation part that is not given is split off
(`task.val_fraction`); without a test part, `bitfront train` leaves the validation part out of
training and reports it. A dict may have these keys too, or the function attributes of these names:

| key | meaning |
|---|---|
| `loss` | a function (outputs, targets) -> mean loss of a batch, a tensor of one number |
| `metric` | a function (outputs, targets) -> number, of a whole part on the CPU, or a dict of \
them by name; `f1` is the objective `val_f1`, and the first one the quality of the task |
| `direction` | of the metric: `max` (the default) or `min`, or a dict by name |
| `outputs` | of the network, where the targets do not tell |
| `kind` | `classification` or `regression`, where the type of the targets does not tell |

The data are looked at once, when the YAML is read: `bitfront validate`, `run` and `bitfront
datasets my_data.py:load` print shape, range, classes and sizes. The name in the search's folder
carries what was found, `my_data.py:load@3f2a9c1b7d20;3x32x32;10;n=800/0/200`. Numbers are used as
they come; uint8 images (channels first) are normalised by mean and deviation of their channels.
Integers, such as the numbers of words, reach a network of your own as integers (`x=int64` in the
name) if an example of integers passes through it (`nn.Embedding`), any other network as floats. Up
to 2 GiB of examples are kept in memory; more, and examples that differ each time they are read
(random transforms), are read for every batch. Random transforms draw from the seed of the trial
where they use the generators of torch, numpy or Python themselves.
"""


PAPER = """\
## Rows of a paper

```yaml
paper:
  title: mixbin                           # a key of docs/catalog.md, or any text
  table: Table 3
  dataset: cifar100
  model: cresnet20
  epochs: 160
  where: {model.act: prelu}               # of every row that draws the key
  rows:
    - {label: full precision, value: 0.6476, spread: 0.004, where: {plan: F, method: bnn}}
    - label: MixBin 40 %
      flops_pct: 38.31                    # as printed
      value: 0.6532
      values: {train_accuracy: 0.71}      # further printed numbers
      where: {method: bnn, plan.selector: mixbin-grad, plan.budget: 40}
    - {label: XNOR-Net, value: 0.53, reason: its input scales are computed from activations}
```

A row is a **setting**: `where`, with `paper.where` and what `space` fixes, names exactly one point
of the space. Every key that the space draws there is given, also where the value is a default;
keys that only other methods have do not count. A row that leaves a key open, or names a value that
the space does not have, is a mistake at its line, unless it has a `reason` (and a warning where
`--set` changed the space). Where rows of a table come in columns, such as full precision and
binary, `columns` has what those of one column share, and a row names its own: `columns: {binary:
{plan: W, optimizer.name: adam}}`, `{label: "AT, binary", column: binary, where: {method: at}}`.
Keys are those of `space`, `method.PARAMETER` is that of the row's method; the plan is named by

| in `where` | with a space whose plan is |
|---|---|
| nothing | fixed, or the method is `fp` |
| `plan: FBBF`, or one letter for all layers | any; if selected, some selector and budget of the \
space must make it |
| `plan.all: W` | `{per: model, ...}` |
| `plan.STAGE: B` for every stage (block, layer) | `{per: stage, ...}` |
| `plan.only: NAME` | `{only: block, ...}` |
| `plan.selector: NAME`, `plan.budget: 40`, `plan.seed: 0` | selected (`plan.seed` where it has \
`seeds`); or drawn by layer, with these among `search.start_from` |
| `plan.seed: each` | selected, with `seeds`: the row's n-th training has the n-th of these draws, \
so that mean and spread are over draws, as papers average random plans |

A search **runs its rows first**: all of them with the seed of the search, then all with the next
one, `paper.seeds` times, and only then is the sampler asked. They count towards `search.trials`,
which is never exceeded: give at least rows x seeds, `preview` says how many that is and what they
cost. They are not stopped early. Two rows with one setting, or with selectors that choose the same
plan, share their trials. `bitfront run NAME --rows "MixBin 40 %"` runs only the rows with that
label (or pattern), whatever `search.trials` is; of its selectors only those run that they name.
`bitfront preview NAME --rows "MixBin 40 %"` says what that costs: trials and epochs, and, where the
data are there to time a few steps, hours.

`bitfront compare NAME --paper` shows mean and standard deviation over the seeds (n - 1 in the
denominator) of the complete trials that ran exactly that setting, or what is missing. Marks:

| mark | means |
|---|---|
| agrees | the difference is at most two standard errors, sqrt(s^2/n + t^2/m): n, s our seeds and \
their deviation, m, t those of the paper (`paper.runs`, `spread`; s where none is printed) |
| same order | not that, but among the answered rows our mean lies between those of the rows \
printed next below and next above |
| differs | neither, or the order cannot be told |
| not comparable | other data, fewer of them (`task.subset`), fewer epochs, or `paper.differs`; \
whether the order is the same is told |

One seed has no deviation: its row is marked by order alone. Two standard errors are a coarse rule
where runs are few: numbers without a difference agree in 90 of 100 cases with 3 seeds and 5 runs of
the paper, in 82 with 3 seeds and a number without a spread. The mark stays that strict; what is
said of two of our rows, that one is above the other "by more than chance", allows for few seeds: it
is Welch's t-test at 5 %, with 3 seeds each 2.8 to 4.3 standard errors.

`compare --paper --all` writes a page over all searches of the home, with the command of each row;
`--keep FOLDER` writes what it is made of to `FOLDER/NAME.json`: the configuration and the trials
without their curves. `compare --paper --all --ready-made --kept FOLDER` writes the page from these
files and the ready-made searches, as [results/papers.md](results/papers.md) is written.

A row may also have `train_accuracy` (`task.measure_train`), `val_accuracy_mean`, of the mean over
draws of the weights (`bayesbinn.mean_samples`; `train_accuracy_mean`), and `test_accuracy` or other
metrics of the test set. Trials see no test set: these are of final trainings of recipes exported
from the row's trials, with their epochs and `--keep` as `task.keep`. A `value` of a test set
(`paper.part`) is shown beside them too.
"""

LIMITS = """\
Limits are on costs, which are known before a trial is trained, and on metrics, which are not:
the sampler spends its trials where they can hold, and the front has only points that keep them.
`limits: {flops_pct: 60, val_accuracy: 0.9}`: a bare number is the worst value; of several seeds
the mean counts. `flops_pct` is of the dearest full-precision network of the space, the same one
for all trials, in tables, figures, MLflow and `export --budget`; `flops_own_pct` is of the
trial's own network.

A search ends after its `trials`, when its `hours` are over or when `until.gain` says so, whichever
comes first. The trials that run then are finished. `bitfront extend` goes on: `--trials +20` lifts
what ended it, `--hours +1` adds an hour.
"""
