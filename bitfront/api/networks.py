"""`bf.load`, `bf.save` and `bf.cost`: networks without a search."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bitfront.api.binarizing import Binarized, handle_of
from bitfront.api.by_value import importable
from bitfront.api.deploying import Opened, targets_of
from bitfront.api.finding import chosen_for, for_all, inputs_for
from bitfront.search import kept_code
from bitfront.trainables import packed
from bitfront.trainables.cost import table_of
from bitfront.trainables.data import DATASETS, DatasetInfo
from bitfront.trainables.data.datasets import normalise, pixel_statistics
from bitfront.trainables.data.no_data import input_name
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import build_method
from bitfront.trainables.models.activations import replace_activations
from bitfront.trainables.own_code import is_reference, look_in, parse, references_in, settle
from bitfront.trainables.own_code.trusted import trusting
from bitfront.trainables.plan import check_plan
from bitfront.trainables.runtime.exports.deployment import Deployed
from bitfront.trainables.runtime.network import Fast, an_example, fast
from bitfront.trainables.settings import REPLACEMENTS
from bitfront.trainables.structure.passing import passed
from bitfront.trainables.structure.scope import Scope
from bitfront.trainables.task import Task, TrialSpec


class LoadedNetwork(nn.Module):
    """A packed network: called like any module; `network` is the module itself, in torch."""

    def __init__(
        self,
        network: nn.Module,
        spec: TrialSpec,
        notes: Mapping[str, Any],
        runtime: Fast | None = None,
    ) -> None:
        super().__init__()
        # torch chooses some kernels, such as those of attention, by whether gradients are wanted.
        self.network = network.requires_grad_(False)
        self.spec = spec
        """what was trained: task, method, plan and seed"""
        self.notes = dict(notes)
        """what final training measured"""
        self.runtime = runtime or Fast(network, reason="runtime='torch'")
        """how it runs: which layers on packed bits, and why the others do not"""
        self.eval()

    @property
    def plan(self) -> str:
        """The letters of its layers."""
        return self.spec.plan

    @property
    def dataset(self) -> DatasetInfo:
        """What it was trained on: shape, classes, mean and deviation of pixels."""
        return DATASETS.get(self.spec.task.dataset)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for a batch. Kernels have no gradients: where x wants some, and on a GPU,
        torch computes."""
        wanted = torch.is_grad_enabled() and x.requires_grad
        fits = x.device.type == "cpu" and x.dtype in (torch.float32, torch.int64) and not wanted
        out: Tensor = (self.runtime.network if fits else self.network)(x)
        return out

    def preprocess(self, image: Any) -> Tensor:
        """A batch of one made of a PIL image, an array (height, width, channels), a tensor
        (channels, height, width) or an example of the shape that the network takes: resized and
        normalised as the training data were."""
        return _preprocessed(image, self.dataset, self.spec.task.normalize)

    def deploy(
        self,
        examples: int = 100,
        data_dir: str | os.PathLike[str] | None = None,
        force: bool = False,
        **files: str | os.PathLike[str],
    ) -> list[Deployed]:
        """Write the network as files that run elsewhere: `net.deploy(onnx="net.onnx")`, as
        `bf.deploy` does."""
        where = None if data_dir is None else os.fspath(data_dir)
        opened = Opened.made(self.network, self.spec, self.notes, examples, where)
        return opened.deploy(targets_of(files), force)


RUNTIMES = ("auto", "torch")


def load(
    path: str | os.PathLike[str],
    model: nn.Module | None = None,
    trust: bool = False,
    runtime: str = "auto",
) -> LoadedNetwork:
    """The packed network in this file, in evaluation mode; it computes the same logits, bit for
    bit, as the one that was saved. `model`: a new network of the same class, for files that do not
    say how theirs is made; `trust`: run the code that the file names although you have not run it
    before; `runtime`: "auto" computes binary layers on packed bits where Numba is installed and a
    kernel fits, after a comparison with torch, "torch" never does."""
    if runtime not in RUNTIMES:
        raise UserError(f"load: runtime {runtime!r}", f"one of {', '.join(RUNTIMES)}")
    file = Path(path)
    if model is not None and not isinstance(model, nn.Module):
        raise UserError(
            f"load: model is a {type(model).__name__}, not a network", "model=MyNet(...)"
        )
    name = packed.describe(file).task.model.name
    again = f"make its network and pass it: bf.load({str(path)!r}, model={_shown_class(name)}(...))"
    look_in(file.absolute().parent)
    try:
        with trusting(trust):
            loaded = LoadedNetwork(*packed.load(file, model))
    except UserError as error:
        if model is not None or not is_reference(name):
            raise
        hint = f"{error.hint}; or {again}" if error.hint else again
        raise UserError(error.message, hint) from error
    if packed.scaled_before_sums(file):
        text = f"{path}: packed before outputs were integer sums: they may differ in the last bits"
        warnings.warn(text, stacklevel=2)
    if runtime == "auto":
        loaded.runtime = fast(loaded.network, an_example(loaded.dataset))
    if model is None:
        names = references_in(loaded.spec.task.model.model_dump(mode="json"))
        for text in kept_code.edited(names, again, [file.absolute().parent]):
            warnings.warn(text, stacklevel=2)
    return loaded


def _shown_class(name: str) -> str:
    return parse(name).name if is_reference(name) else name


def save(model: nn.Module, path: str | os.PathLike[str], rest: str = "float32") -> int:
    """Write a network that `bf.binarize` made binary, with one bit per binary weight; returns the
    bytes of its tensors. Its class is stored by reference where that is enough to make it again: a
    class with arguments, or one of a notebook, is passed when the file is loaded,
    `bf.load(path, model=MyNet(...))`."""
    handle = handle_of(model)
    handle.finish()
    if handle.shapes is None:
        raise UserError("save: the network was never called", "call it once with an example")
    if rest != "float32":
        packed.round_rest(handle, rest)
    name, plain = _class_name(model), type(model).__qualname__
    size = _write(handle, name, Path(path), rest)
    if name != plain and not _reads_back(Path(path)):
        size = _write(handle, plain, Path(path), rest)
    return size


def _write(handle: Binarized, name: str, path: Path, rest: str) -> int:
    assert handle.shapes is not None
    shape, out = handle.shapes
    chosen = handle.chosen
    task = Task.model_validate(
        {
            "dataset": input_name(shape, math.prod(out), handle.integers),
            "model": {"name": name},
            "binarize": chosen.scope if isinstance(chosen.scope, str) else list(chosen.scope),
            "keep_full": list(chosen.keep_full),
            "activations": chosen.activations,
        }
    )
    spec = TrialSpec(
        task=task, method=_method_name(handle), params=handle.method.values, plan=handle.plan
    )
    return packed.save(handle, spec, path, {"saved": "bf.save"}, rest)


def _method_name(handle: Binarized) -> str:
    """The name of the method; of one of the user's own the reference, with the hash of its code."""
    reference = getattr(handle.method, "reference", None)
    if reference is None:
        return handle.method.name
    return str(reference) if parse(reference).digest else settle(reference)


def _reads_back(path: Path) -> bool:
    """Whether the file can be loaded without the network that was saved."""
    try:
        packed.load(path)
    except UserError:
        return False
    return True


def _class_name(model: nn.Module) -> str:
    """The reference of a network's class where another process can import it, else its name. A
    class of torch itself, such as Sequential, does not say what is in it."""
    found = None if type(model).__module__.startswith("torch.nn.") else importable(type(model))
    return type(model).__qualname__ if found is None else settle(found)


def cost(
    model: nn.Module,
    plan: str,
    shape: Sequence[int] | None = None,
    method: str = "bnn",
    binarize: Scope = "body",
    keep_full: Sequence[str] = (),
    activations: str = "auto",
    example: Tensor | None = None,
    **params: Any,
) -> dict[str, float]:
    """The costs of a planned network for inputs of `shape` (without the batch) or like `example` (a
    batch), by name, exact and known before training; the other arguments are those of
    `bf.binarize`. One letter stands for all layers."""
    inputs = inputs_for(model, shape, example, "cost")
    if inputs is None:
        raise UserError("cost: it depends on the size of an input", "shape=(3, 32, 32)")
    built = build_method(method, params)
    chosen = chosen_for(model, binarize, keep_full, activations)
    if chosen.activations in REPLACEMENTS:
        model = copy.deepcopy(model)
        replace_activations(
            model, chosen.activations, tuple(inputs.shape[1:]), type(model).__name__
        )
    table = table_of(passed(model, inputs), chosen.scope, chosen.keep_full)
    letters = check_plan(for_all(plan, table.plan_layers), table.plan_layers)
    return table.costs(letters, *table.parts(letters, built, chosen.activations))


def _preprocessed(image: Any, info: DatasetInfo, normalize: str) -> Tensor:
    import numpy as np
    from torchvision.transforms.functional import resize

    if isinstance(image, Tensor):
        x = image
    else:
        x = torch.from_numpy(np.array(image))
        as_trained = tuple(x.shape) == info.shape
        if len(info.shape) == 3 and x.dim() in (2, 3) and not as_trained:
            # channels last, or none in a grey image
            x = (x if x.dim() == 3 else x[..., None]).permute(2, 0, 1)
    if len(info.shape) != 3 and tuple(x.shape) != info.shape:
        wanted, given = ("x".join(map(str, shape)) for shape in (info.shape, x.shape))
        raise UserError(
            f"preprocess: an example of shape {given}, the network takes {wanted}",
            "it takes one example and makes a batch of one; a batch goes to the network itself",
        )
    if x.dim() != len(info.shape):
        raise UserError(
            f"preprocess: an image has 3 dimensions, not {x.dim()}",
            "it takes one image and makes a batch of one; a batch goes to the network itself",
        )
    channels = info.shape[0]
    if x.shape[0] != channels:
        if channels == 3 and x.shape[0] == 1:
            x = x.expand(3, -1, -1)
        elif channels == 1 and x.shape[0] == 3:
            x = x.float().mean(0, keepdim=True).to(x.dtype)
        else:
            raise UserError(f"preprocess: {x.shape[0]} channels, the network takes {channels}")
    if tuple(x.shape) != info.shape and len(info.shape) == 3:
        x = resize(x, list(info.shape[1:]), antialias=True)
    mean, std = pixel_statistics(info, normalize)
    return normalise(x[None], replace(info, mean=mean, std=std))
