"""Methods of the user's own. The smallest is a function that quantizes weights:

    def soft_sign(w, slope=3.0):
        return torch.tanh(slope * w)

Its arguments are parameters. In training a layer multiplies with its result and the gradient is
torch's own; in evaluation with the sign. Where the result has no gradient, as that of a sign, the
gradient of the result is taken for that of w (the straight-through estimator). A class with
`forward` and `backward` gives F and B; a `torch.autograd.Function` both at once; a subclass of
`Method` everything else. An argument called `progress` gets the fraction of training that has
passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from bitfront.trainables.errors import UserError
from bitfront.trainables.methods.base import METHODS, Method
from bitfront.trainables.methods.quantizer_pair import SCALE, QuantizerPair, clamp
from bitfront.trainables.own_code.loading import about, blamed
from bitfront.trainables.own_code.reference import called, shown
from bitfront.trainables.own_code.signatures import arguments, parameters, summary
from bitfront.trainables.parameters import Param, Value
from bitfront.trainables.training.schedules.values import Schedule

if TYPE_CHECKING:
    from torch import Tensor

    from bitfront.trainables.layers.quantizers import Pair

FAMILY = "own"
# Arguments of quantizers that are the fraction of training that has passed.
PROGRESS = ("progress", "value")
HINT = "write def quantize(w, slope=1.0), or a class with forward(w) and backward(w)"

Quantize = Callable[..., Any]


class OwnQuantizer(QuantizerPair):
    """A quantizer of the user's own. `make` returns the function that is called with w and the
    arguments `names`, from the values of the parameters."""

    family = FAMILY
    paper = ""
    levels = "FWB"
    names: ClassVar[tuple[str, ...]] = ()
    reference: ClassVar[str]
    make: ClassVar[Callable[[Mapping[str, Value]], Quantize]]

    def _make_schedule(self) -> Schedule:
        return Schedule(0.0, 1.0)

    def pair(self) -> Pair:
        from bitfront.trainables.layers.quantizers import Pair

        with blamed(self.reference, "cannot be made"):
            quantize = type(self).make(self.values)
        values, names = self.values, self.names

        def given(progress: float) -> tuple[Any, ...]:
            return tuple(progress if name in PROGRESS else values[name] for name in names)

        checked = _Checked(quantize, self.reference)
        soft, through = _probed(checked, given)
        checked.through = through
        return Pair(checked, soft=soft, arguments=given)  # type: ignore[arg-type]


class _Checked:
    """Calls a quantizer; what it raises names its file and line. `through`: its gradient is that of
    the straight-through estimator."""

    def __init__(self, quantize: Quantize, reference: str) -> None:
        self.quantize = quantize
        self.reference = reference
        self.through = False

    def apply(self, w: Tensor, *given: Any) -> Tensor:
        import torch

        with blamed(self.reference, "cannot quantize"):
            out = self.quantize(w, *given)
        if not isinstance(out, torch.Tensor) or out.shape != w.shape:
            got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            raise UserError(
                f"{shown(self.reference)} makes {got} of a weight of shape {tuple(w.shape)}",
                "a quantizer returns a tensor of the shape it is given",
            )
        if out.dtype == torch.bool:
            raise UserError(
                f"{shown(self.reference)} makes truth values of weights",
                "signs are numbers: torch.where(w >= 0, 1.0, -1.0)",
            )
        out = out.to(w.dtype)
        return w + (out - w).detach() if self.through else out


def _probed(quantize: _Checked, given: Callable[[float], tuple[Any, ...]]) -> tuple[bool, bool]:
    """(whether it is not the sign, whether it has no gradient), from its values at a few points."""
    import torch

    from bitfront.trainables.layers.quantizers import sign

    soft, slopes = False, 0.0
    for progress in (0.0, 0.5, 1.0):
        # Of the shape of a convolution's weight, since some quantizers take means over channels.
        w = torch.tensor([-1.7, -0.6, -0.2, 0.1, 0.4, 0.9, 1.3, -0.05]).view(2, 2, 2, 1)
        w.requires_grad_()
        with torch.enable_grad():
            out = quantize.apply(w, *given(progress))
            if not out.isfinite().all():
                raise UserError(f"{shown(quantize.reference)} makes NaN or infinity of weights")
            soft = soft or not torch.equal(out.detach(), sign(w))
            if out.requires_grad:
                with blamed(quantize.reference, "has no gradient"):
                    (slope,) = torch.autograd.grad(out.sum(), w, allow_unused=True)
                slopes += 0.0 if slope is None else float(slope.abs().sum())
    return soft, slopes == 0.0


@METHODS.adopts
def adopt(found: Any, reference: str) -> type[Method]:
    """The method that an object of the user's own stands for."""
    import torch

    given = getattr(found, "name", None)
    named = {
        "name": given if isinstance(given, str) else called(reference),
        "doc": summary(found),
        "reference": reference,
        "__module__": __name__,
    }
    if isinstance(found, type) and issubclass(found, Method):
        return _completed(found, named)
    made: type[Method] | None = None
    with blamed(reference, "is no method"), about(reference):
        if isinstance(found, type) and issubclass(found, torch.autograd.Function):
            made = _of_function(lambda _values: found.apply, found.forward, {}, named, skip=2)
        elif isinstance(found, type) and hasattr(found, "forward"):
            made = _of_class(found, named)
        elif callable(found) and not isinstance(found, type):
            made = _of_function(lambda _values: found, found, {}, named)
    if made is None:
        raise UserError(f"{shown(reference)} is no method: {type(found).__name__}", HINT)
    _ = made({}).soft  # quantizes a few weights: a mistake is found before a trial begins
    return made


def _completed(found: type[Method], named: Mapping[str, Any]) -> type[Method]:
    """A subclass of `Method` with what its declaration leaves out."""
    given = {"family": FAMILY, "paper": "", **named}
    missing = {key: value for key, value in given.items() if not hasattr(found, key)}
    return type(found.__name__, (found,), missing)


def _of_class(found: type, named: Mapping[str, Any]) -> type[Method]:
    """A class with `forward`, and `backward` where it has one; a torch module too. Methods with
    `self` are called on an instance, whose arguments are parameters as well."""
    import torch

    forward: Any = found.forward  # type: ignore[attr-defined]
    bound = next(iter(a.name for a in arguments(forward)), "") == "self"
    made = parameters(found) if bound else {}
    with_slope = hasattr(found, "backward")

    def make(values: Mapping[str, Value]) -> Quantize:
        holder: Any = found(**{name: values[name] for name in made}) if bound else found
        if isinstance(holder, torch.nn.Module) and list(holder.parameters()):
            raise UserError(
                f"{named['name']} has weights of its own, which no layer would train",
                "write a subclass of bitfront.trainables.methods.Method",
            )
        if isinstance(holder, torch.nn.Module) and not with_slope:
            return holder
        plain: Quantize = holder.forward
        return _with_slope(plain, holder.backward) if with_slope else plain

    return _of_function(make, forward, made, named, skip=2 if bound else 1)


def _with_slope(forward: Quantize, backward: Quantize) -> Quantize:
    """F = `forward`, and the gradient of w is that of F(w) times B(w) = `backward`."""
    import torch

    class ForwardBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor, *given: Any) -> Tensor:
            ctx.save_for_backward(w)
            ctx.given = given
            out = forward(w, *given)
            return out.clone() if out is w else out

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (w,) = ctx.saved_tensors
            return grad * backward(w, *ctx.given), *(None for _ in ctx.given)

    applied: Quantize = ForwardBackward.apply
    return applied


def _of_function(
    make: Callable[[Mapping[str, Value]], Quantize],
    signature: Callable[..., Any],
    more: Mapping[str, Param],
    named: Mapping[str, Any],
    skip: int = 1,
) -> type[Method]:
    """The method whose quantizer has this signature, of which the first `skip` arguments are not
    parameters; `more`: parameters besides those of the signature."""
    given = [argument.name for argument in arguments(signature)]
    if len(given) < skip:
        raise UserError("it takes no weight", HINT)
    own = parameters(signature, (*given[:skip], *PROGRESS))
    usual = {"scale": SCALE, "clamp": clamp(True)}
    taken = sorted(usual.keys() & {**more, **own})
    if taken:
        raise UserError(
            f"its argument '{taken[0]}' is called like a parameter that every method has",
            "give it another name",
        )
    content = {
        **named,
        "params": {**usual, **more, **own},
        "names": tuple(given[skip:]),
        "make": staticmethod(make),
    }
    return type(str(named["name"]), (OwnQuantizer,), content)
