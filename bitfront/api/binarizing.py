"""`bf.binarize`: the methods without a search, in anyone's own training loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bitfront.api.by_value import reference_to
from bitfront.api.finding import (
    SAY_SHAPE,
    Chosen,
    chosen_for,
    for_all,
    found_layers,
    inputs_for,
    layers_table,
)
from bitfront.search.ledger.folder import home
from bitfront.trainables.errors import UserError
from bitfront.trainables.layers.binary import BinaryLayer, apply_plan
from bitfront.trainables.layers.treatments import InputShift, starting_shifts
from bitfront.trainables.layers.verify import NotBinaryError, verify_binary
from bitfront.trainables.methods import build_method
from bitfront.trainables.methods.base import Method
from bitfront.trainables.models.activations import replace_activations
from bitfront.trainables.models.surgery import is_compiled
from bitfront.trainables.own_code import is_reference, settle
from bitfront.trainables.plan import check_plan
from bitfront.trainables.settings import REPLACEMENTS
from bitfront.trainables.structure.counting import sites
from bitfront.trainables.structure.passing import guessed
from bitfront.trainables.structure.scope import Scope
from bitfront.trainables.training.network import laid_out, layout_of
from bitfront.trainables.training.norms import (
    RECALIBRATION_EXAMPLES,
    batch_statistics,
    recalibrate_on,
)
from bitfront.trainables.training.schedules import phases

if TYPE_CHECKING:
    import pandas as pd

# The attribute in which a network that was made binary here keeps its handle, for `bf.save`.
HANDLE = "_bitfront_handle"
# Phases are shares of the training: of so many epochs.
EPOCHS = 1000
# Inputs of the last steps that are kept for the statistics of batch norms, at most.
KEPT_BYTES = 64 * 2**20


class Binarized:
    """The handle of a network that `bf.binarize` made binary.

    A method with an optimizer of its own, or with a change of the gradients, needs to know your
    optimizer: `optimizer = handle.attach(optimizer)`; where you do not, `before_step` says so.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: str,
        method: Method,
        chosen: Chosen,
        inputs: Tensor | None,
        given: bool,
    ) -> None:
        self.model = model
        self.method = method
        self.chosen = chosen
        if chosen.activations in REPLACEMENTS:
            _replace(model, chosen.activations, inputs)
        self._planned = found_layers(model, chosen.scope, chosen.keep_full, inputs)
        self._sites = sites(model)
        self.plan = check_plan(for_all(plan, self._planned), self._planned, method.levels)
        self._made = apply_plan(model, self._planned, self.plan, method, chosen.activations)
        self._phases = self.method.phases(EPOCHS)
        self._phase = 0
        self.method.enter(self._phases[0])
        self.own_optimizer = self.method.own_optimizer()
        """the method's optimizer of its binary weights; None: yours has all parameters"""
        self._attached: Optimizer | None = None
        self._open = False
        self.shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """of an input and of its output, without the batch; None before the first call"""
        self.integers = False
        """whether its inputs were integers, such as token numbers"""
        self._inputs: deque[Tensor] = deque(maxlen=RECALIBRATION_EXAMPLES)
        laid_out(model, layout_of(type(model).__name__, model))
        model.register_forward_hook(self._note_shapes)
        if any(isinstance(module, InputShift) for module in model.modules()):
            if given and inputs is not None:
                _start_shifts(model, inputs)
            else:
                self._starting = model.register_forward_pre_hook(self._start_shifts)

    @property
    def binary(self) -> list[BinaryLayer]:
        """The layers that the plan made binary or pruned."""
        return self._made

    @property
    def layers(self) -> pd.DataFrame:
        """The layers that the letters of the plan stand for, in their order, as a table."""
        return layers_table(self._planned, self.plan, self._sites)

    def _start_shifts(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Let the shifts of inputs start from the first batch of the training."""
        if model.training and inputs and isinstance(inputs[0], Tensor):
            self._starting.remove()
            _start_shifts(model, inputs[0])

    def _note_shapes(self, _model: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            self.shapes = (tuple(inputs[0].shape[1:]), tuple(output.shape[1:]))
            self.integers = not inputs[0].is_floating_point()
            if self.model.training and self.method.soft:
                self._inputs.append(inputs[0].detach())
                while len(self._inputs) > 1 and sum(x.nbytes for x in self._inputs) > KEPT_BYTES:
                    self._inputs.popleft()

    def parameters(self) -> list[nn.Parameter]:
        """The parameters for your optimizer: all but those that the method updates itself."""
        own = self.own_optimizer
        taken = {id(p) for group in own.param_groups for p in group["params"]} if own else set()
        return [p for p in self.model.parameters() if p.requires_grad and id(p) not in taken]

    def attach(self, optimizer: Optimizer) -> Optimizer:
        """The same optimizer, whose `step` and `zero_grad` now do the method's part too."""
        if self._attached is not None:
            raise UserError("attach: this network has an optimizer already")
        self._attached = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])  # as the schedulers of torch do
        zero = optimizer.zero_grad

        def zero_both(set_to_none: bool = True) -> None:
            zero(set_to_none)
            if self.own_optimizer is not None:
                self.own_optimizer.zero_grad(set_to_none)

        optimizer.zero_grad = zero_both  # type: ignore[method-assign]
        optimizer.register_step_pre_hook(lambda *_: self.method.after_backward())
        optimizer.register_step_post_hook(lambda *_: self._after_update())
        return optimizer

    @property
    def draws(self) -> int:
        """How many forward and backward passes the method averages a step over; 1 for most."""
        return self.method.draws

    def before_epoch(self) -> None:
        """Call it before an epoch, for methods that compare epochs; it may be left out."""
        self.method.before_epoch()

    def before_step(self, fraction: float) -> None:
        """Call it before every step, with the fraction of the training that has passed, 0 at the
        first step and 1 at the last: schedules and phases of the method follow it."""
        if not 0.0 <= fraction <= 1.0:
            raise UserError(f"before_step: {fraction} is no fraction of training from 0 to 1")
        if self._attached is None:
            self._need_optimizer()
            self._close_step()
        passed = self._enter(fraction)
        if self._attached is not None:
            group = self._attached.param_groups[0]
            self.method.learning_rate = group["lr"]
            self._follow(group["lr"] / group["initial_lr"] if group["initial_lr"] else 1.0)
        self.method.before_step(passed)
        self._open = True

    def _need_optimizer(self) -> None:
        """Raise a UserError where the method must know the optimizer and does not."""
        changes = type(self.method).after_backward is not Method.after_backward
        if self.own_optimizer is not None or changes or len(self._phases) > 1:
            why = "changes gradients" if changes else "has an optimizer of its own"
            raise UserError(
                f"{self.method.name} {why}",
                "make yours with handle.parameters() and attach it: "
                "optimizer = handle.attach(optimizer)",
            )

    def _enter(self, fraction: float) -> float:
        """Enter the phase that this fraction of the training belongs to; returns the fraction that
        has passed of its run of the schedules."""
        if len(self._phases) == 1:
            return fraction
        epoch = min(int(fraction * EPOCHS), EPOCHS - 1)
        index, first = phases.locate(self._phases, epoch)
        while self._phase < index:
            self._phase += 1
            self.method.enter(self._phases[self._phase])
            if not self._phases[self._phase].continues:
                self.own_optimizer = self.method.own_optimizer()
                self._hand_over()
        start, epochs = phases.run_of(self._phases, index)
        first -= sum(phase.epochs for phase in self._phases[start:index])
        return min(1.0, (fraction * EPOCHS - first) / epochs)

    def _hand_over(self) -> None:
        """Begin the state of your optimizer anew, without the parameters that the method updates
        itself from now on."""
        assert self._attached is not None
        kept = {id(p) for p in self.parameters()}
        self._attached.state.clear()
        for group in self._attached.param_groups:
            group["params"] = [p for p in group["params"] if id(p) in kept]

    def _follow(self, share: float) -> None:
        """Give the method's optimizer its learning rate, on the schedule of yours."""
        if self.own_optimizer is not None:
            for group in self.own_optimizer.param_groups:
                group["lr"] = share * float(self.method.values.get("lr", 1.0))

    def penalty(self) -> Tensor:
        """The method's term to add to the loss; 0 where it has none."""
        found = self.method.penalty()
        return torch.zeros(()) if found is None else found

    def finish(self, batches: Iterable[Any] | None = None) -> Self:
        """End the training: the network is in evaluation mode, and every planned layer is checked
        to hold what its level promises. Where the method trains with soft weights, the statistics
        of batch norms are estimated anew for the hard ones: from `batches`, such as a DataLoader of
        training data without augmentation, else from the last inputs of the training."""
        self._close_step()
        self.method.before_evaluation()
        self.model.eval()
        if self.method.soft and self._made:
            inputs = list(self._inputs) if batches is None else (_input(b) for b in batches)
            self._estimate_norms(inputs)
        self._inputs.clear()
        try:
            verify_binary(self.model, self._made)
        except NotBinaryError as error:
            raise UserError(
                f"finish: {error}", "call handle.before_step(fraction) before every step, up to 1"
            ) from None
        return self

    def _estimate_norms(self, inputs: Iterable[Any]) -> None:
        given = iter(inputs)
        first = next(given, None)
        if first is not None:
            device = next(self.model.parameters()).device
            moved = (x.to(device) for x in chain([first], given))
            recalibrate_on(self.model, moved, len(first))

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
    method: str | Callable[..., Any] = "bnn",
    binarize: Scope = "body",
    keep_full: Sequence[str] = (),
    activations: str = "auto",
    shape: Sequence[int] | None = None,
    example: Tensor | None = None,
    examples: int = 1,
    **params: Any,
) -> Binarized:
    """Make the planned layers of `model` binary, in place, and return the handle of its training.
    `plan`: a letter per layer that a plan decides (`handle.layers`), or one letter for all;
    `binarize`, `keep_full` and `activations`: as in a task, so that letters and training are those
    of a search. `shape`: that of an input, without the batch, or `example`, a batch of inputs:
    layers are found by following one through the network. Without both a shape is tried that fits;
    networks of `bitfront models`, timm and torchvision need none. `examples`: how many the training
    data have, for methods that weigh them (bayesbinn); `method`: a name, a reference or a class or
    function of yours, `params`: its parameters."""
    if not isinstance(model, nn.Module):
        raise UserError(f"binarize: {type(model).__name__} is no network", "pass an nn.Module")
    if hasattr(model, HANDLE):
        raise UserError("binarize: this network is binary already", "make it anew")
    if is_compiled(model):
        raise UserError(
            "binarize: the network is compiled already",
            "bf.binarize(model, ...) first, then model = torch.compile(model)",
        )
    named = reference_to(method, "method", home(None))
    built = build_method(settle(named) if is_reference(named) else named, params)
    built.examples = examples
    chosen = chosen_for(model, binarize, keep_full, activations)
    inputs = inputs_for(model, shape, example, "binarize")
    handle = Binarized(model, plan, built, chosen, inputs, given=example is not None)
    model.__dict__[HANDLE] = handle
    return handle


def _replace(model: nn.Module, activations: str, inputs: Tensor | None) -> None:
    """Put other activations into a network, in place."""
    batch = guessed(model) if inputs is None and activations == "rprelu" else inputs
    if batch is None and activations == "rprelu":
        raise UserError("binarize: activations: rprelu needs an example", SAY_SHAPE)
    extents = () if batch is None else tuple(batch.shape[1:])
    replace_activations(model, activations, extents, type(model).__name__)


def _start_shifts(model: nn.Module, inputs: Tensor) -> None:
    """Let the shifts of inputs start from the means that these inputs have on a batch."""
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    with batch_statistics(model), starting_shifts(model):
        model(inputs.detach().to(device))
    for module, training in modes.items():
        module.training = training


def handle_of(model: nn.Module) -> Binarized:
    """The handle of a network that was made binary here."""
    handle = getattr(model, HANDLE, None)
    if not isinstance(handle, Binarized):
        raise UserError("this network was not made binary", "handle = bf.binarize(model, ...)")
    return handle


def _input(batch: Any) -> Any:
    """The inputs of a batch: the first of (x, y), or the batch itself."""
    return batch[0] if isinstance(batch, list | tuple) else batch
