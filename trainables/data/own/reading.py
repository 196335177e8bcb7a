"""Examples of the user's own as tensors: one at a time or a whole part, with an error of one line
and a hint for everything that cannot be trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitfront.trainables.data.own.opened import FORMS, blame, is_pair
from bitfront.trainables.errors import UserError, first_line
from bitfront.trainables.own_code import shown

if TYPE_CHECKING:
    import torch

# Channels that an image may have.
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Source:
    """A part that is read: the name of the dataset and of the part, for messages."""

    dataset: str
    part: str

    def __str__(self) -> str:
        return f"{shown(self.dataset)}, part {self.part}"

    def refuse(self, problem: str, hint: str | None = None) -> UserError:
        """The error that says what is wrong with the part."""
        return UserError(f"{self}: {problem}", hint)


class Rows:
    """Two arrays as examples (x, y)."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.x[index], self.y[index]


def indexed(given: Any, source: Source) -> Any:
    """The part as something with a length and examples by number; what can only be read from the
    beginning to the end is read."""
    from torch.utils.data import DataLoader, IterableDataset, default_collate

    if is_pair(given):
        x, y = (each.to_numpy() if hasattr(each, "to_numpy") else each for each in given)
        _refuse_sparse(x, "x", source)
        if len(x) != len(y):
            raise source.refuse(f"{len(x):,} examples but {len(y):,} targets")
        made: Any = Rows(x, y)
    elif isinstance(given, DataLoader):
        by_number = not isinstance(given.dataset, IterableDataset)
        if by_number and given.collate_fn is default_collate:
            made = given.dataset
        elif by_number and given.batch_size is not None:
            # Without the shuffling of the loader: every process must see the same order.
            made = _from_batches(
                DataLoader(given.dataset, given.batch_size, collate_fn=given.collate_fn), source
            )
        else:
            made = _from_batches(given, source)
    elif isinstance(given, IterableDataset):
        with blame(source.dataset, f"an error when the part {source.part} is read"):
            made = list(given)
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__") and not _is_text(given):
        made = given
    else:
        kind = type(given).__name__
        hint = f"it can be read once only: return list(...); or {FORMS}"
        once = hasattr(given, "__next__")
        raise UserError(
            f"{shown(source.dataset)} returns {kind} as {source.part}", hint if once else FORMS
        )
    with blame(source.dataset, f"an error when the part {source.part} is counted"):
        count = len(made)
    if not count:
        raise source.refuse("is empty", "did a path or a filter match nothing?")
    return made


def _is_text(given: Any) -> bool:
    return isinstance(given, str | bytes | dict)


def _from_batches(loader: Any, source: Source) -> Rows:
    import torch

    with blame(source.dataset, f"an error when the part {source.part} is read"):
        batches = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in loader]
    if not batches:
        raise source.refuse("is empty")
    try:
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    except RuntimeError as error:
        raise source.refuse(f"batches of different shapes ({first_line(error)})") from None
    return Rows(x, y)


def example(part: Any, index: int, source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    """Example number `index` as (x, y): x a uint8, int64 or float32 tensor, y int64 or
    float32."""
    with blame(source.dataset, f"an error when example {index} of {source.part} is read"):
        item = part[index]
    if isinstance(item, dict):
        keys = ", ".join(map(str, list(item)[:6]))
        raise source.refuse(
            f"example {index} is a dict of {keys}, not a pair (x, y)",
            "return (item['...'], item['...']) from __getitem__",
        )
    if not isinstance(item, list | tuple) or len(item) != 2:
        what = f"{len(item)} values" if isinstance(item, list | tuple) else type(item).__name__
        raise source.refuse(f"example {index} is {what}, not a pair (x, y)", FORMS)
    x = _tensor(item[0], f"x of example {index}", source)
    y = _tensor(item[1], f"y of example {index}", source)
    return as_input(x), as_target(y)


def _tensor(value: Any, what: str, source: Source) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        return _real(value.detach().cpu(), what, source)
    _refuse_sparse(value, what, source)
    if isinstance(value, np.ma.MaskedArray) and value.mask.any():
        raise source.refuse(f"{what} has masked values", "fill them in: x.filled(0)")
    if hasattr(value, "getbands") and hasattr(value, "convert"):
        raise source.refuse(
            f"{what} is a PIL image",
            "give the dataset a transform that makes a tensor: torchvision.transforms.ToTensor()",
        )
    if isinstance(value, str | bytes | dict | tuple) or value is None:
        kind = type(value).__name__
        label = "number the classes from 0: names.index(label), or pandas.factorize(labels)[0]"
        hint = label if isinstance(value, str | bytes) and what.startswith("y ") else None
        raise source.refuse(f"{what} is a {kind}, not an array of numbers", hint)
    try:
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError("not an array of numbers")
        # In the order of bytes of this machine, and writable, as torch wants them.
        array = np.require(array, array.dtype.newbyteorder("="), ("C", "W"))
        return _real(torch.from_numpy(array), what, source)
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise source.refuse(f"{what} is a {kind}: {first_line(error)}") from None


def _refuse_sparse(value: Any, what: str, source: Source) -> None:
    if hasattr(value, "toarray"):
        kind = type(value).__name__
        raise source.refuse(f"{what} is sparse: a {kind}", "as an array: x.toarray()")


def _real(tensor: torch.Tensor, what: str, source: Source) -> torch.Tensor:
    """The tensor, unless it is of complex numbers."""
    if tensor.is_complex():
        raise source.refuse(
            f"{what} is complex",
            "its parts as channels, torch.view_as_real(x), or its size alone, x.abs()",
        )
    return tensor


def as_input(x: torch.Tensor) -> torch.Tensor:
    """uint8 as it is, other integers as int64, everything else as float32."""
    import torch

    if x.dtype == torch.uint8:
        return x
    whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
    return x.to(torch.int64 if whole else torch.float32)


def are_integers(x: torch.Tensor) -> bool:
    """Whether a batch of examples is of integers, such as token numbers, and not of images."""
    import torch

    return x.dtype == torch.int64 or (x.dtype == torch.uint8 and x.dim() != 4)


def as_target(y: torch.Tensor) -> torch.Tensor:
    """Labels as int64, targets as float32; one number in a vector of length 1 is that number."""
    import torch

    y = y.to(torch.float32 if y.is_floating_point() else torch.int64)
    return y.reshape(()) if tuple(y.shape) == (1,) else y


def stacked(part: Any, source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    """All examples of a part as (x, y), checked."""
    import torch

    if isinstance(part, Rows):
        x = as_input(_tensor(part.x, "x", source))
        y = _tensor(part.y, "y", source)
        y = y.to(torch.float32 if y.is_floating_point() else torch.int64)
        y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
    else:
        x, y = _read_all(part, source)
    check_shape(x[0], source)
    check_numbers(x, "x", source)
    check_numbers(y, "y", source)
    return x, y


def _read_all(part: Any, source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    count = len(part)
    targets = []
    x0, y0 = example(part, 0, source)
    made = x0.new_empty((count, *x0.shape))
    for index, (x, y) in enumerate(examples(part, source)):
        check_same(x, x0, index, "x", source)
        check_same(y, y0, index, "y", source)
        if x.is_floating_point() and not made.is_floating_point():  # as in rows of a table
            made = made.to(x.dtype)
        made[index] = x
        targets.append(y)
    return made, torch.stack(targets)


def examples(part: Any, source: Source) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """All examples of a part in order."""
    return (example(part, index, source) for index in range(len(part)))


def check_same(
    tensor: torch.Tensor, first: torch.Tensor, index: int, what: str, source: Source
) -> None:
    """Refuse an example of another shape or type than the first one."""
    if tensor.shape != first.shape:
        raise source.refuse(
            f"mixed shapes: {what} of example {index} is {_shape(tensor)}, of example 0 "
            f"{_shape(first)}",
            "resize, cut or pad examples to one shape"
            + (": torchvision.transforms.Resize((64, 64))" if first.dim() == 3 else ""),
        )
    if what == "y" and tensor.is_floating_point() != first.is_floating_point():
        raise source.refuse(
            f"mixed types: {what} of example {index} is {_kind(tensor)}, of example 0 "
            f"{_kind(first)}"
        )


def _kind(tensor: torch.Tensor) -> str:
    return "a float" if tensor.is_floating_point() else "an integer"


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


def check_shape(x: torch.Tensor, source: Source) -> None:
    """Refuse an example without any axis or number, and an image whose channels are last."""
    if x.dim() == 0:
        raise source.refuse(
            "x is a single number", "an example has at least one axis: x.reshape(1)"
        )
    if not x.numel():
        raise source.refuse(f"x of shape {_shape(x)} holds no number")
    if x.dim() == 3 and x.shape[2] in _CHANNELS and x.shape[0] > max(_CHANNELS) and _is_image(x):
        raise source.refuse(
            f"images of {_shape(x)} have their channels last, torch has them first",
            "x.permute(2, 0, 1) for tensors, x.transpose(2, 0, 1) for arrays of one image",
        )


def _is_image(x: torch.Tensor) -> bool:
    """Whether three axes with few values along the last one are most likely an image with its
    channels last, and no spectrogram of many channels and few frames."""
    import torch

    return x.shape[0] == x.shape[1] or x.shape[2] == 3 or x.dtype == torch.uint8


def check_numbers(tensor: torch.Tensor, what: str, source: Source) -> None:
    """Refuse NaN and infinity."""
    if not tensor.is_floating_point():
        return
    for start in range(0, len(tensor), 4096):
        finite = tensor[start : start + 4096].isfinite()
        if not bool(finite.all()):
            wrong = finite.flatten(1).all(1) if finite.dim() > 1 else finite
            index = start + int(wrong.logical_not().nonzero()[0])
            raise source.refuse(
                f"{what} of example {index} has NaN or an infinite number",
                "leave such examples out, or fill them in: numpy.nan_to_num",
            )


def check_labels(y: torch.Tensor, classes: int | None, source: Source) -> None:
    """Refuse labels that are not 0, 1, ... and, where it is known, below the number of classes."""
    low, high = int(y.min()), int(y.max())
    if low < 0:
        raise source.refuse(f"labels from {low} to {high}", "classes are counted from 0")
    if classes is not None and high >= classes:
        raise source.refuse(
            f"label {high} is out of range, the classes are 0 to {classes - 1}",
            "every class is among the training examples, or outputs says how many there are",
        )
