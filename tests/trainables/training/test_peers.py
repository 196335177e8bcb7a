"""Workers that share every batch: two real processes joined by gloo, every method."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bitfront.trainables.data import Batches, load_train
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.training.loop import Training
from bitfront.trainables.training.parts import search_data
from bitfront.trainables.training.peers import Peers, check_shareable

pytestmark = pytest.mark.slow


def specs(make_spec):
    """Every method for two epochs on a network without batch norm noise in its way."""
    for name, method in METHODS.items():
        if method.adversary != "fgsm-atta":
            level = next(letter for letter in "WBSF" if letter in method.levels)
            yield make_spec(name, level, epochs=2)


def trained(spec, peers=None):
    training = Training(spec, *search_data(spec.task), validate_each_epoch=False, peers=peers)
    while not training.done:
        training.epoch()
    return training


def keep_best(spec):
    """Both workers end with the best epoch, although one of them evaluates."""
    jumping = {"keep": "best", "epochs": 6, "optimizer": {"lr": 0.3}, "schedule": "constant"}
    task = spec.task.model_validate(spec.task.model_dump() | jumping)
    training = Training(spec.model_copy(update={"task": task}), *search_data(task), peers=Peers())
    while not training.done:
        training.epoch()
    reached = [None, None]
    dist.all_gather_object(reached, training.history[-1]["best_epoch"])
    assert reached[0] == reached[1] < 6
    training.peers.check_same(training.model)


def work(rank, meeting, listed):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    for spec in listed:
        # `check_same` runs after every epoch: weights that came apart are an error here.
        training = trained(spec, Peers())
        assert ("val_accuracy" in training.history[-1]) == (rank == 0), spec.method
    keep_best(listed[0])
    dist.barrier()  # gloo aborts a process whose peer has gone
    dist.destroy_process_group()


@pytest.mark.timeout(300)
def test_every_method_stays_one_network_on_two_workers(make_spec, tmp_path):
    listed = list(specs(make_spec))
    assert len(listed) > 20
    mp.spawn(work, args=(tmp_path / "meeting", listed), nprocs=2)  # type: ignore[attr-defined]


def test_shares_of_a_batch_are_disjoint_and_make_the_batch():
    part = load_train("digits").first(100)
    whole = list(Batches(part, 20, seed=1))
    shares = [list(Batches(part, 20, seed=1, share=(worker, 2))) for worker in range(2)]
    for (x, _), (one, _), (two, _) in zip(whole, *shares, strict=True):
        assert torch.equal(x[0::2], one)
        assert torch.equal(x[1::2], two)


def test_one_gradient_of_the_whole_batch(make_spec):
    """Averaging the gradients of equal shares is the gradient of the batch, where no batch norm
    looks at the rest of it."""
    x, y = torch.randn(8, 5), torch.randint(3, (8,))
    layer = torch.nn.Linear(5, 3)

    def gradient(rows):
        layer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
        return layer.weight.grad.clone()

    whole = gradient(slice(None))
    shares = [gradient(slice(worker, None, 2)) for worker in range(2)]
    assert torch.allclose(sum(shares) / 2, whole, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "workers", "told"),
    [
        ({"batch_size": 32}, 3, "shared equally"),
        ({"batch_size": 4}, 4, "2 examples"),
        ({"batch_size": 32}, 0, "at least 1"),
        ({"attack": {"train": "fgsm-atta", "eps": 0.1}}, 2, "one worker"),
    ],
)
def test_what_cannot_be_shared_is_refused(make_spec, fields, workers, told):
    with pytest.raises(UserError, match=told):
        check_shareable(make_spec("fp", "F", **fields), workers)
