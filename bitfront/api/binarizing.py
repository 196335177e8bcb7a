"""`bf.binarize`: the methods without a search, in anyone's own training loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import BinaryLayer, apply_plan
from bitfront.trainables.layers.verify import verify_binary
from bitfront.trainables.methods import build_method
from bitfront.trainables.plan import LEVELS, check_plan, plan_layers, with_real_inputs
from bitfront.trainables.settings import AUTO_ACTIVATIONS
from bitfront.trainables.training.network import laid_out
from bitfront.trainables.training.schedules.phases import Phase

# The handle of every network that was made binary here, for `bf.save`.
_handles: WeakKeyDictionary[nn.Module, Binarized] = WeakKeyDictionary()


class Binarized:
    """The handle of a network that `bf.binarize` made binary.

    A method with an optimizer of its own, several draws per step or a change of the gradients needs
    to know your optimizer: `optimizer = handle.attach(optimizer)`.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: str,
        method: str,
        params: dict[str, Any],
        scope: str,
        activations: str,
    ) -> None:
        layers = plan_layers(model, scope)
        self.model = model
        self.method = build_method(method, params)
        self.plan = _for_all(plan, len(layers), layers)
        self.scope = scope
        check_plan(self.plan, layers, self.method.levels)
        self.activations = _treatment(model, activations)
        """what happens to inputs before their sign: `keep` or `norm`"""
        self.layers = apply_plan(model, layers, self.plan, self.method, self.activations)
        self._phases = self.method.phases(1000)
        self.method.enter(self._phases[0])
        self.own_optimizer = self.method.own_optimizer()
        """the method's optimizer of its binary weights; None: yours has all parameters"""
        self._attached: Optimizer | None = None
        self._open = False
        self.shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """of an input and of its output, without the batch; None before the first call"""
        laid_out(model)
        model.register_forward_hook(self._note_shapes)

    @property
    def binary(self) -> list[BinaryLayer]:
        """The layers that the plan made binary or pruned."""
        return self.layers

    def _note_shapes(self, _model: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            self.shapes = (tuple(inputs[0].shape[1:]), tuple(output.shape[1:]))

    def parameters(self) -> list[nn.Parameter]:
        """The parameters for your optimizer: all but those that the method updates itself."""
        own = self.own_optimizer
        taken = {id(p) for group in own.param_groups for p in group["params"]} if own else set()
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in taken]

    def attach(self, optimizer: Optimizer) -> Optimizer:
        """The same optimizer, whose `step` and `zero_grad` now do the method's part too."""
        self._attached = optimizer
        if self.own_optimizer is not None:
            zero = optimizer.zero_grad
            own = self.own_optimizer

            def zero_both(set_to_none: bool = True) -> None:
                zero(set_to_none)
                own.zero_grad(set_to_none)

            optimizer.zero_grad = zero_both  # type: ignore[method-assign]
        optimizer.register_step_pre_hook(lambda *_: self._before_update())
        optimizer.register_step_post_hook(lambda *_: self._after_update())
        return optimizer

    def before_epoch(self) -> None:
        """Call it before an epoch, for methods that compare epochs; it may be left out."""
        self.method.before_epoch()

    def before_step(self, fraction: float) -> None:
        """Call it before every step, with the fraction of the training that has passed: schedules
        follow it."""
        if not 0.0 <= fraction <= 1.0:
            raise UserError(f"before_step: {fraction} is no fraction of training from 0 to 1")
        if self._attached is None:
            if self.own_optimizer is not None or self.method.draws > 1:
                raise UserError(
                    f"{self.method.name} has an optimizer of its own",
                    "optimizer = handle.attach(optimizer), made with handle.parameters()",
                )
            self._close_step()
        else:
            self.method.learning_rate = self._attached.param_groups[0]["lr"]
        self.method.before_step(fraction)
        self._open = True

    def penalty(self) -> Tensor:
        """The method's term to add to the loss; 0 where it has none."""
        found = self.method.penalty()
        return torch.zeros(()) if found is None else found

    def phases(self, epochs: int) -> Sequence[Phase]:
        """The phases that the method divides so many epochs into; most have one."""
        return self.method.phases(epochs)

    def enter(self, phase: Phase) -> None:
        """Begin a phase: make a new optimizer for it, as `bf.binarize` was the first."""
        self._close_step()
        self.method.enter(phase)
        self.own_optimizer = self.method.own_optimizer()
        self._attached = None

    def finish(self) -> Self:
        """End the training: the network is in evaluation mode, and every planned layer is checked
        to hold what its level promises."""
        self._close_step()
        self.method.before_evaluation()
        self.model.eval()
        verify_binary(self.model, self.layers)
        return self

    def _before_update(self) -> None:
        self.method.after_backward()

    def _after_update(self) -> None:
        if self.own_optimizer is not None:
            self.own_optimizer.step()
        self.method.after_step()
        self._open = False

    def _close_step(self) -> None:
        """End the step before, where no optimizer is attached that does it."""
        if self._open and self._attached is None:
            self.method.after_step()
        self._open = False

    def __repr__(self) -> str:
        return f"<{self.method.name} on {type(self.model).__name__}: {self.plan}>"


def binarize(
    model: nn.Module,
    plan: str = "B",
    method: str = "bnn",
    scope: str = "body",
    activations: str = "auto",
    **params: Any,
) -> Binarized:
    """Make the planned layers of `model` binary, in place, and return the handle of its training.
    `plan`: a letter per layer that a plan decides, or one letter for all; `scope`: `body`, all
    layers but first, last and shortcuts, or `all`; `activations`: `norm`, a batch norm before the
    sign of every binary input, `keep`, none, or `auto`, as a search does: none for the models of
    `bitfront models`; `params`: those of the method."""
    if model in _handles:
        raise UserError("binarize: this network is binary already", "make it anew")
    handle = Binarized(model, plan, method, params, scope, activations)
    _handles[model] = handle
    return handle


def _treatment(model: nn.Module, activations: str) -> str:
    """What happens to the inputs of binary layers; a UserError for what only a search can do."""
    if activations not in ("auto", "keep", "norm"):
        hint = "a search takes all choices of task.activations"
        raise UserError(f"binarize: activations: give auto, keep or norm, not {activations}", hint)
    if activations != "auto":
        return activations
    declared = type(model).__module__.startswith("bitfront.trainables.models.")
    return "keep" if declared else AUTO_ACTIVATIONS


def handle_of(model: nn.Module) -> Binarized:
    """The handle of a network that was made binary here."""
    if model not in _handles:
        raise UserError("this network was not made binary", "handle = bf.binarize(model, ...)")
    return _handles[model]


def _for_all(plan: str, count: int, layers: Sequence[Any]) -> str:
    """The plan; one letter stands for all layers."""
    if len(plan) == 1 and plan in LEVELS and count != 1:
        return with_real_inputs(plan * count, layers)
    return plan
