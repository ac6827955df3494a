"""What tensors an update holds at its peak, and what autograd keeps of its forwards: a 0.5 B model cut to a few layers.

    python -m benchmarks.kept
    python -m benchmarks.kept --layers 24 --other ../old

Plays Blackjack with 16 environments until 32 turns of 16 tokens are there and makes one update of them, with an adapter
and one epoch, counting bytes of storages (of at least 4 KiB) as operators make them and as they are let go. Weights
that were there before do not count; what the allocator holds beyond is not seen. With `--other`, code of this checkout
and of another one, each in a process of its own. Imports what older versions have, too.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import memory
from benchmarks.bare_run import BareRun, settings
from llamagym_tui.engine.learning import ppo

MIB = 2**20
SMALLEST = 4096
"""Bytes of a storage that counts."""
LISTED = 12
CHANGES = (
    "seed=11", "n_envs=16", "ppo.batch_size=32", "ppo.mini_batch_size=32", "ppo.epochs=1",
    "ppo.critic_warmup_updates=0", "generation.max_new_tokens=16",
)  # fmt: skip
Kind = tuple[str, tuple[int, ...]]
"""Operator and shape."""


class Live(TorchDispatchMode):
    """Storages that operators have made and that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.at_peak = dict[int, tuple[int, Kind]]()
        self.peak = self.now = 0
        self._live = dict[int, tuple[int, Kind]]()
        self._watched = dict[int, Any]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        # A view's storage is its base's, which may be a weight that was there before.
        if not func.is_view:
            for tensor in tree_leaves(made):
                if isinstance(tensor, Tensor):
                    self._count(tensor, str(func.overloadpacket).removeprefix("aten."))
        return made

    def _count(self, tensor: Tensor, name: str) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._watched or size < SMALLEST:
            return

        def gone(_: Any) -> None:
            self.now -= self._live.pop(key)[0]
            del self._watched[key]

        self._watched[key] = weakref.ref(storage, gone)
        self._live[key] = size, (name, tuple(tensor.shape))
        self.now += size
        if self.now > self.peak:
            self.peak, self.at_peak = self.now, dict(self._live)


def main(
    layers: Annotated[int, typer.Option(help="Of the model.")] = 4,
    other: Annotated[Path | None, typer.Option(help="Folder of another checkout.")] = None,
    model: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    if model is not None:
        count(model)
        return
    # Here alone: an older version's modules lack them.
    from benchmarks.against import HERE, printed_by_code_of
    from benchmarks.first_frame import environment

    with tempfile.TemporaryDirectory() as folder, environment() as env:
        cut = memory.SETTINGS["0.5B-adapter"].shape | {"num_hidden_layers": layers}
        memory.build_model(cut, Path(folder))
        for code in filter(None, (HERE, other and other.resolve())):
            print("this checkout" if code == HERE else "the other one", flush=True)
            print(printed_by_code_of(code, env, Path(__file__), "--model", folder), flush=True)


def count(model: Path) -> None:
    run = BareRun(
        settings("blackjack", CHANGES, model=str(model), full_finetuning=False), threads=1
    )
    run.play()
    batch, forwards = run.rollout.take_batch(), ppo.forwards

    def watched(*args: Any, **options: Any) -> Iterator[Any]:
        for part in forwards(*args, **options):
            sizes = [len(tree) for tree in part.trees.trees]
            print(
                f"  forward: prefix {len(part.prefix)}, trees {sizes}, places of logits {len(part.place_rows)}"
            )
            yield part

    ppo.forwards = watched
    known = {each.untyped_storage().data_ptr() for each in run.policy.model.parameters()}
    kept = dict[tuple[int, int], tuple[int, Kind]]()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known and storage.nbytes() >= SMALLEST:
            kept.setdefault(
                (storage.data_ptr(), storage.nbytes()),
                (storage.nbytes(), ("kept", tuple(tensor.shape))),
            )
        return tensor

    live = Live()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), live:
        run.ppo.update(batch)
    print_largest("held at the peak", live.at_peak)
    print_largest("kept by autograd, all forwards", kept)


def print_largest(title: str, found: dict[Any, tuple[int, Kind]]) -> None:
    sizes, counts = Counter[Kind](), Counter(kind for _, kind in found.values())
    for size, kind in found.values():
        sizes[kind] += size
    print(f"  {title}: {sizes.total() / MIB:,.0f} MiB")
    for (name, shape), size in sizes.most_common(LISTED):
        print(f"    {size / MIB:8.1f} MiB: {counts[name, shape]} of {name} {list(shape)}")


if __name__ == "__main__":
    typer.run(main)
