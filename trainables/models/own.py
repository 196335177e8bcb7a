"""Networks of the user's own: a class or function that a YAML names, `my_net.py:MyNet`. It needs no
base class and no registration. Its arguments are the keys below `model`; those for the number of
classes and of input channels are filled from the data."""

from __future__ import annotations

import inspect
import warnings
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
from bitfront.trainables.models.surgery import without_compilation
from bitfront.trainables.own_code import shown
from bitfront.trainables.own_code.loading import blamed, origin
from bitfront.trainables.own_code.signatures import summary
from bitfront.trainables.parameters import Anything, Param
from bitfront.trainables.structure.counting import Counted, count
from bitfront.trainables.structure.meta import on_meta
from bitfront.trainables.structure.passing import blank, has_names

# Arguments that are filled from the data unless they are given; those that often mean something
# else, only where they have no default.
CLASSES = ("num_classes", "n_classes", "classes", "num_outputs", "n_outputs")
CHANNELS = ("in_channels", "in_chans", "channels")
FEATURES = ("in_features", "n_features", "num_features", "input_dim")
ONLY_REQUIRED = ("channels", *FEATURES)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class MissingArgumentError(UserError):
    """An argument without a default that nobody gives a value for."""


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

    def make(self, shape: Shape, classes: int, given: dict[str, Any]) -> nn.Module:
        # As a dict, since the user's arguments may be called `shape` or `classes` too.
        return self.build(shape, classes, self.resolve(given))


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
    shape: Shape,
    classes: int,
    values: dict[str, Any],
    found: Callable[..., Any],
    reference: str,
) -> nn.Module:
    info = cast(OwnModel, MODELS.get(reference))
    arguments = _filled(info, values, shape, classes)
    missing = [name for name in info.required if name not in arguments]
    label = shown(reference)
    if missing:
        how = f"model: {{name: {label}, {missing[0]}: ...}}, or space: model.{missing[0]}: [...]"
        if "name" in missing:
            how = "the key name is that of the network: name a function that gives it and calls it"
        raise MissingArgumentError(f"{label} needs {', '.join(missing)}, which is not given", how)
    written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    call = f"{label.rpartition(':')[2]}({written})"
    try:
        with blamed(reference, f"{call} cannot be made"):
            network = found(**arguments)
    except UserError as error:
        raise UserError(error.message, error.hint or hint_for(error)) from error
    if not isinstance(network, nn.Module):
        raise UserError(
            f"{origin(reference).path}: {call} returns a {type(network).__name__}, no network",
            "it should return a torch.nn.Module",
        )
    if isinstance(network, torch.jit.ScriptModule):
        raise UserError(
            f"{origin(reference).path}: {call} returns a ScriptModule, whose layers are fixed",
            "name the class, or a function that returns the network before torch.jit.script",
        )
    network = without_compilation(network)
    if torch.get_default_device().type != "meta" and any(p.is_meta for p in _tensors(network)):
        raise UserError(
            f"{origin(reference).path}: {call} has tensors on the meta device, without values",
            "give them values where the network is made: leave out device='meta'",
        )
    if any(is_lazy(p) for p in _tensors(network)):
        with blamed(reference, f"{label} fails on {_sized(shape)}"):
            _call_once(network, shape)
    return network


def _tensors(network: nn.Module) -> list[Tensor]:
    """The parameters and buffers of a network."""
    return [*network.parameters(), *network.buffers()]


def _call_once(network: nn.Module, shape: Shape) -> None:
    """Call a network, which makes its lazy layers: with floats, or with integers where it does not
    take those."""
    try:
        _run(network, blank(1, shape, network), training=False)
    except Exception:
        try:
            _run(network, blank(1, shape, network, integers=True), training=False)
            return
        except Exception:
            pass
        raise


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
    name: str,
    params: dict[str, Any],
    shape: Shape,
    classes: int,
    activations: str = "keep",
    integers: bool | None = None,
    axes: bool = False,
) -> Counted:
    """The network, with its activations replaced as `task.activations` says, after one example has
    passed through it: on the meta device, or on the CPU where its code does not run there. A
    UserError with its file and line where it cannot be made, fails on the example, or returns
    something else than one output per class. `integers`: the example is of integers; None: where
    floats fail. `axes`: outputs may have further axes, as class maps have."""
    if integers is None:
        try:
            return counted_own(name, params, shape, classes, activations, False, axes)
        except UserError:
            if not takes_integers(name, params, shape, classes, axes):
                raise
            integers = True
    try:
        with on_meta():
            network = _made(name, params, shape, classes, activations)
        tensors = _tensors(network)
        if all(tensor.is_meta for tensor in tensors) and tensors:
            return _passed(network, name, params, shape, classes, integers, axes)
    except Exception:  # whatever it is, the CPU shows it too
        pass
    with torch.random.fork_rng(devices=[]):
        network = _made(name, params, shape, classes, activations)
        return _passed(network, name, params, shape, classes, integers, axes)


def takes_integers(
    name: str, params: dict[str, Any], shape: Shape, classes: int, axes: bool = False
) -> bool:
    """Whether an example of integers, such as token numbers, passes through the network."""
    try:
        counted_own(name, params, shape, classes, integers=True, axes=axes)
    except UserError:
        return False
    return True


def _made(
    name: str, params: dict[str, Any], shape: Shape, classes: int, activations: str
) -> nn.Module:
    return with_activations(build_model(name, params, shape, classes), activations, shape, name)


def _passed(
    network: nn.Module,
    name: str,
    params: dict[str, Any],
    shape: Shape,
    classes: int,
    integers: bool,
    axes: bool,
) -> Counted:
    written = ", ".join(f"{key}={value!r}" for key, value in params.items())
    label = shown(name) + (f"({written})" if written else "")
    sized = _sized(shape) + (" integers" if integers else "")
    try:
        with blamed(name, f"{label} fails on {sized}"):
            x = blank(1, shape, network, integers)
            counted = count(network, x, by_names=has_names(network))
        with blamed(name, f"{label} fails in training on {sized}"):
            trained = _run(network, blank(2, shape, network, integers), training=True)
    except UserError as error:
        if error.hint is not None:
            raise
        batch = _sized((1, *shape))
        hint = f"it is called with batches of any size of the examples of the data, here {batch}"
        raise UserError(error.message, hint_for(error) or hint) from error
    place = f"{origin(name).path}: {label}"
    _check_output(counted.output, 1, classes, axes, place)
    _check_output(trained, 2, classes, axes, f"{place} in training")
    if not trained.requires_grad and any(p.requires_grad for p in network.parameters()):
        raise UserError(
            f"{place} in training returns an output without a gradient: no weight would change",
            "leave out torch.no_grad(), torch.inference_mode(), .detach() and .data in forward",
        )
    return counted


def _run(network: nn.Module, x: Tensor, training: bool) -> Any:
    was_training = network.training
    network.train(training)
    try:
        # What torch warns of, the training will say again.
        with torch.set_grad_enabled(training), warnings.catch_warnings(action="ignore"):
            return network(x)
    finally:
        network.train(was_training)


def _check_output(out: Any, batch: int, classes: int, axes: bool, place: str) -> None:
    """Raise a UserError unless the output is one number per example and class, or, with `axes`, a
    tensor with further axes, which the loss of the user decides about."""
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
    if classes and tuple(out.shape[1:]) != (classes,) and not (axes and out.dim() > 2):
        numbers = f"{_sized(tuple(out.shape[1:]))} numbers" if out.dim() > 1 else "one number"
        raise UserError(
            f"{place} returns {numbers} per example, the data have {classes} classes",
            "an argument called num_classes is filled from the data; or give the one it has",
        )


def hint_for(error: UserError) -> str | None:
    """What to do about an error in code of the user's own that is often made."""
    if "IndexError: index out of range in self" in error.message:
        return "an nn.Embedding has fewer rows than the numbers in the data: give it more"
    if "argument" in error.message and "forward() missing" in error.message:
        return (
            "it is called with the examples alone: give the argument a default, or name a "
            "function that wraps the network"
        )
    if any(word in error.message for word in ("NVIDIA", "CUDA", "cuda")):
        return "leave out .cuda() and .to('cuda'): trials move the network to where they run"
    if "same dtype" in error.message or "same datatype" in error.message:
        return "examples are float32, as layers are: leave out .double(), .half() and the like"
    if "BatchedTensor" in error.message:
        return "layers inside torch.vmap cannot be followed: call them with the whole batch"
    return None


def _sized(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
