"""Networks of the user's own: a class or function that a YAML names, `my_net.py:MyNet`. It needs no
base class and no registration. Its arguments are the keys below `model`; those for the number of
classes and of input channels are filled from the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.models.activations import with_activations
from bitfront.trainables.models.base import MODELS, ModelInfo, Shape, build_model
from bitfront.trainables.own_code import shown
from bitfront.trainables.own_code.loading import blamed, origin
from bitfront.trainables.own_code.signatures import summary
from bitfront.trainables.parameters import Anything, Param
from bitfront.trainables.structure.counting import Counted, count

# Arguments that are filled from the data unless they are given; those that often mean something
# else, only where they have no default.
CLASSES = ("num_classes", "n_classes", "classes", "num_outputs", "n_outputs")
CHANNELS = ("in_channels", "in_chans", "channels")
FEATURES = ("in_features", "n_features", "num_features", "input_dim")
ONLY_REQUIRED = ("channels", *FEATURES)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class OwnModel(ModelInfo):
    """A network of the user's own. `required`: arguments without a default; `open`: it takes any
    further arguments."""

    required: tuple[str, ...] = ()
    open: bool = False

    def resolve(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments that are given; the others have the defaults of the code."""
        for name in given:
            if self.param(name) is None:
                known = did_you_mean(name, self.params)
                raise UnknownNameError(
                    f"model.{name}: {shown(self.name)} has no such argument, {known}"
                )
        return dict(given)

    def param(self, name: str) -> Param | None:
        return Param("", Anything()) if self.open else self.params.get(name)


@MODELS.adopts
def adopt(found: Any, reference: str) -> OwnModel:
    """The declaration of a class or function of the user's own, read from its signature."""
    label = shown(reference)
    if isinstance(found, nn.Module):
        raise UserError(
            f"{label} is one network, and trials need a new one each",
            "name its class, or a function that makes and returns it",
        )
    if not callable(found) or (
        inspect.isclass(found) and not issubclass(found, nn.Module) and _is_plain(found)
    ):
        raise UserError(
            f"{label} is no network: it is {_what(found)}",
            "name a class that extends torch.nn.Module, or a function that returns a module",
        )
    given = _signature(found)
    named = {name: p for name, p in given.items() if p.kind in _NAMED}
    empty = inspect.Parameter.empty
    return OwnModel(
        name=reference,
        doc=summary(found),
        build=partial(_build, found=found, reference=reference),
        params={
            name: Param("" if p.default is empty else p.default, Anything())
            for name, p in named.items()
        },
        image=False,
        required=tuple(name for name, p in named.items() if p.default is empty),
        open=any(p.kind is inspect.Parameter.VAR_KEYWORD for p in given.values()),
    )


def _signature(found: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(found).parameters)
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return {"arguments": inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)}


def _is_plain(found: type) -> bool:
    """Whether calling a class makes an object of it, and so never a module."""
    make: Any = found.__new__
    return make is object.__new__


def _what(found: Any) -> str:
    return f"a {'class' if inspect.isclass(found) else type(found).__name__}"


# --- building -----------------------------------------------------------------------------------


def _build(
    shape: Shape, classes: int, found: Callable[..., Any], reference: str, **values: Any
) -> nn.Module:
    info = cast(OwnModel, MODELS.get(reference))
    arguments = _filled(info, values, shape, classes)
    missing = [name for name in info.required if name not in arguments]
    label = shown(reference)
    if missing:
        raise UserError(
            f"{label} needs {', '.join(missing)}, which the YAML does not give",
            f"model: {{name: {label}, {missing[0]}: ...}}, or space: model.{missing[0]}: [...]",
        )
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    call = f"{label.rpartition(':')[2]}({written})"
    with blamed(reference, f"{call} cannot be made"):
        network = found(**arguments)
    if not isinstance(network, nn.Module):
        raise UserError(
            f"{origin(reference).path}: {call} returns a {type(network).__name__}, no network",
            "it should return a torch.nn.Module",
        )
    if any(is_lazy(p) for p in (*network.parameters(), *network.buffers())):
        with blamed(reference, f"{label} fails on {_sized(shape)}"):
            _run(network, _example(1, shape, network), training=False)
    return network


def _filled(info: OwnModel, values: dict[str, Any], shape: Shape, classes: int) -> dict[str, Any]:
    """The arguments, those for classes and inputs filled from the data. `classes` 0: not known."""
    known = dict.fromkeys(CLASSES, classes) if classes else {}
    known |= dict.fromkeys(CHANNELS, shape[0])
    if len(shape) == 1:
        known |= dict.fromkeys(FEATURES, shape[0])
    filled = {
        name: number
        for name, number in known.items()
        if name in info.params and (name in info.required or name not in ONLY_REQUIRED)
    }
    return filled | values


# --- one example through it ---------------------------------------------------------------------


def counted_own(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str = "keep"
) -> Counted:
    """The network, with its activations replaced as `task.activations` says, after one example has
    passed through it: on the meta device, or on the CPU where its code does not run there. A
    UserError with its file and line where it cannot be made, fails on the example, or returns
    something else than one output per class."""
    try:
        with torch.device("meta"):
            network = _made(name, params, shape, classes, activations)
        tensors = (*network.parameters(), *network.buffers())
        if all(tensor.is_meta for tensor in tensors) and tensors:
            return _passed(network, name, shape, classes)
    except Exception:  # whatever it is, the CPU shows it too
        pass
    with torch.random.fork_rng(devices=[]):
        network = _made(name, params, shape, classes, activations)
        return _passed(network, name, shape, classes)


def _made(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str
) -> nn.Module:
    return with_activations(build_model(name, params, shape, classes), activations, shape, name)


def _passed(network: nn.Module, name: str, shape: Shape, classes: int) -> Counted:
    label, sized = shown(name), _sized(shape)
    try:
        with blamed(name, f"{label} fails on {sized}"):
            counted = count(network, _example(1, shape, network), by_names=False)
        with blamed(name, f"{label} fails in training on {sized}"):
            trained = _run(network, _example(2, shape, network), training=True)
    except UserError as error:
        if error.hint is not None:
            raise
        hint = f"it is called with a batch, here {_sized((1, *shape))}, of the data of the task"
        raise UserError(error.message, hint) from error
    place = f"{origin(name).path}: {label}"
    _check_output(counted.output, 1, classes, place)
    _check_output(trained, 2, classes, f"{place} in training")
    return counted


def _example(count: int, shape: Shape, network: nn.Module) -> Tensor:
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    return torch.zeros(count, *shape, device=device)


def _run(network: nn.Module, x: Tensor, training: bool) -> Any:
    was_training = network.training
    network.train(training)
    try:
        with torch.no_grad():
            return network(x)
    finally:
        network.train(was_training)


def _check_output(out: Any, batch: int, classes: int, place: str) -> None:
    """Raise a UserError unless the output is one number per example and class."""
    if not isinstance(out, Tensor):
        what = f"a {type(out).__name__}"
        if isinstance(out, tuple | list):
            what += f" of {len(out)}"
        raise UserError(
            f"{place} returns {what}, not one tensor",
            "return the outputs of the classes alone, or name a function that wraps the network",
        )
    if not out.is_floating_point():
        raise UserError(f"{place} returns {out.dtype}, not floating-point numbers")
    if out.dim() == 0 or out.shape[0] != batch:
        raise UserError(
            f"{place} returns shape {_sized(tuple(out.shape))} for a batch of {batch}",
            "the first dimension is the batch; squeeze() removes it where the batch is 1: "
            "name the dimension, squeeze(-1)",
        )
    if classes and tuple(out.shape[1:]) != (classes,):
        raise UserError(
            f"{place} returns {_sized(tuple(out.shape[1:]))} numbers per example, the data have "
            f"{classes} classes",
            "an argument called num_classes is filled from the data; or give the one it has",
        )


def _sized(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
