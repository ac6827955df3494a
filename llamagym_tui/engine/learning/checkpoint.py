"""Checkpoints: the model as a standard folder that transformers or PEFT load, and what PPO needs to resume.

Besides the weights a folder holds tensors (the optimizer's moments, the sampling generator) as safetensors and
everything else as msgpack, neither of which can run code. All of it is read and compared with the learner before
anything is put into it. Where the folders stand is up to `llamagym_tui.engine.learning.checkpoint_folders`.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor

from llamagym_tui.engine.allocator import return_freed_memory
from llamagym_tui.engine.learning import checkpoint_folders as folders
from llamagym_tui.engine.learning.ppo import PPO, PPOState
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.value_head import VALUE_HEAD_FILE
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.run_folder import GOOD_MODEL_DIR, MODEL_DIR, OLD_MODEL_DIR, START_DIR
from llamagym_tui.user_files import file_content, link_folder, require_regular

TENSORS, STATE = "learner.safetensors", "learner.msgpack"
MOST_STATE = 2**30
"""Bytes of a learner's state without its tensors; most of it are the episodes under way."""
GENERATOR = "generator"
WORDS = {
    MODEL_DIR: "latest checkpoint",
    OLD_MODEL_DIR: "one before it",
    GOOD_MODEL_DIR: "last good one",
}

C = TypeVar("C")
log = logging.getLogger(__name__)


class Unfit(Exception):
    """A checkpoint cannot be used; the message is for people."""


class Saved(NamedTuple):
    weights: dict[str, Tensor]
    head: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    generator: Tensor
    ppo: PPOState
    version: int
    """Version of the policy."""
    counters: Any


class Loaded(NamedTuple):
    counters: Any
    note: str
    """For people: which checkpoint was taken, and why; empty if it was the latest one."""


def save_checkpoint(run_dir: Path, policy: Policy, ppo: PPO, counters: Any) -> Path:
    """Write model, tokenizer, optimizer, random states and the session's counters; the model's folder.

    Args:
        counters: anything that msgspec encodes.
    Raises:
        RunStoreError: it cannot be written; the one before still stands, and nothing is left of the new one.
    """
    weights, moments = (
        ppo.shards.gather() if ppo.shards else (None, ppo.optimizer.state_dict()["state"])
    )
    named = (
        (f"{index}.{name}", value)
        for index, each in moments.items()
        for name, value in each.items()
    )
    tensors = {name: value.contiguous() for name, value in named}
    with _reported(run_dir), folders.written(run_dir, MODEL_DIR) as draft:
        policy.model.save_pretrained(draft, weights)
        policy.chat.tokenizer.save_pretrained(draft)
        save_file(tensors | {GENERATOR: policy.generator.get_state()}, draft / TENSORS)
        plain = {"ppo": ppo.state, "version": policy.version, "counters": counters}
        (draft / STATE).write_bytes(msgspec.msgpack.encode(plain))
    if ppo.shards:
        del weights, moments, tensors, named  # whole copies
        return_freed_memory()
    return run_dir / MODEL_DIR


def keep_checkpoint(run_dir: Path, name: str = GOOD_MODEL_DIR) -> Path:
    """Keep the latest checkpoint under a name, to be restored by `roll_back`; its folder.

    Raises:
        RunStoreError: it cannot be written; what was kept under that name still stands.
    """
    with _reported(run_dir):
        return folders.keep(run_dir, name)


def load_checkpoint(run_dir: Path, policy: Policy, ppo: PPO, kind: type[C] | Any = dict) -> Loaded:
    """Restore weights and learner state in a policy and a learner made from the original model.

    The latest checkpoint is tried, then the one before it, then the last good one.

    Args:
        kind: type of the counters.
    Raises:
        RunStoreError: there is no checkpoint that can be used.
    """
    faults: list[str] = []
    for name in WORDS:
        place = run_dir / name
        if not place.is_dir():
            if name == MODEL_DIR:
                faults.append(f"the {WORDS[name]} is missing")
            continue
        try:
            saved = _read(place, policy, ppo, kind)
        except Unfit as error:
            faults.append(f"the {WORDS[name]} cannot be used ({error})")
            continue
        _put(saved, policy, ppo)
        policy.version = saved.version
        _set_generator(policy, saved.generator)
        if faults and (run_dir / MODEL_DIR).is_dir():
            with contextlib.suppress(OSError):
                folders.set_aside(run_dir / MODEL_DIR)
        note = (
            f"{'; '.join(faults)}; the run goes on from the {WORDS[name]}, of update {ppo.updates}."
        )
        return Loaded(saved.counters, note[0].upper() + note[1:] if faults else "")
    reason, advice = "; ".join(faults), "start again in another --run-dir"
    for place in (run_dir / name for name in WORDS if (run_dir / name).is_dir()):
        with contextlib.suppress(Unfit), _understood(place):
            require_regular(place)
            _read_weights(place, policy)
            advice = (
                f"the weights in {str(place)!r} are whole: begin another run with them by --model"
            )
            break
    raise RunStoreError(f"No checkpoint can be read in {str(run_dir)!r}: {reason}; {advice}.")


def keep_with_reference(run_dir: Path, policy: Policy, ppo: PPO) -> None:
    """Keep the latest checkpoint and PPO's reference, which is about to be replaced, to be restored by `roll_back`.

    Raises:
        RunStoreError: they cannot be written.
    """
    if ppo.reference is not None and not (run_dir / START_DIR).is_dir():
        with ppo.reference.in_place():
            save_start(run_dir, policy)
    keep_checkpoint(run_dir)


def roll_back(run_dir: Path, policy: Policy, ppo: PPO) -> Path:
    """Restore weights, learner state and reference of the last good checkpoint; its folder.

    Random states are not restored, or the same failure would follow. The policy gets a new version, so that nothing is
    used that the abandoned weights computed.

    Raises:
        RunStoreError: there is none, or it cannot be used; policy and learner are as they were.
    """
    place = run_dir / GOOD_MODEL_DIR
    if not place.is_dir():
        raise RunStoreError(
            "There is no good checkpoint to roll back to yet: one is kept once an update after it has shown nothing "
            "wrong; train on, or start again in another --run-dir."
        )
    try:
        saved = _read(place, policy, ppo, Any)
    except Unfit as error:
        raise RunStoreError(
            f"The checkpoint in {str(place)!r} cannot be used ({error}); train on."
        ) from error
    if ppo.reference is not None and (place / START_DIR).is_dir():
        if ppo.shards:
            raise RunStoreError(
                "A roll back to before a warm start needs whole weights: resume with shard=false."
            )
        start = _read_start(place / START_DIR, policy)
        with _reported(run_dir), folders.written(run_dir, START_DIR) as draft:
            link_folder(place / START_DIR, draft)
        _put_weights(*start, policy)
        ppo.reference = Reference(policy)
    _put(saved._replace(ppo=replace(saved.ppo, random=ppo.state.random)), policy, ppo)
    policy.version += 1
    return place


def save_start(run_dir: Path, policy: Policy) -> Path:
    """Keep the policy after a warm start, which is PPO's reference; its folder.

    Raises:
        RunStoreError: it cannot be written; the one before still stands.
    """
    with _reported(run_dir), folders.written(run_dir, START_DIR) as draft:
        policy.model.save_pretrained(draft)
    return run_dir / START_DIR


def load_start(run_dir: Path, policy: Policy) -> None:
    """Restore what `save_start` kept, if there is anything, once what a crash has left is removed.

    Raises:
        RunStoreError: it cannot be used.
    """
    with _reported(run_dir):
        folders.clean(run_dir)
    if (run_dir / START_DIR).is_dir():
        _put_weights(*_read_start(run_dir / START_DIR, policy), policy)


def _read_start(place: Path, policy: Policy) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    try:
        with _understood(place):
            return _read_weights(place, policy)
    except Unfit as error:
        raise RunStoreError(
            f"The policy that PPO began from cannot be used in {str(place)!r} ({error}): "
            "start again in another --run-dir."
        ) from error


def _read(place: Path, policy: Policy, ppo: PPO, kind: Any) -> Saved:
    """A checkpoint that fits a policy and a learner; raises Unfit if it cannot be read, or does not fit."""
    with _understood(place):
        require_regular(place)
        plain = msgspec.msgpack.decode(file_content(place / STATE, most=MOST_STATE))
        tensors = load_file(place / TENSORS)
        generator = tensors.pop(GENERATOR)
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, _, moment = name.partition(".")
            optimizer.setdefault(int(index), {})[moment] = value
        weights, head = _read_weights(place, policy)
        _require_fit(optimizer, ppo)
        return Saved(
            weights=weights,
            head=head,
            optimizer=optimizer,
            generator=generator,
            ppo=msgspec.convert(plain["ppo"], PPOState),
            version=plain["version"],
            counters=msgspec.convert(plain["counters"], kind),
        )


def _require_fit(optimizer: dict[int, dict[str, Tensor]], ppo: PPO) -> None:
    trained = dict(
        enumerate(weight for group in ppo.optimizer.param_groups for weight in group["params"])
    )
    for index, moments in optimizer.items():
        for name, value in moments.items():
            if index not in trained or (name != "step" and value.shape != trained[index].shape):
                raise Unfit("its optimizer belongs to other weights")


def _read_weights(place: Path, policy: Policy) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    model = policy.model
    weights: dict[str, Tensor] = {}
    own, tied = model.named_weights(), set[str]()
    if model.is_adapted:
        weights = load_file(place / "adapter_model.safetensors")
    else:
        for file in sorted(place.glob("model*.safetensors")):
            weights |= load_file(file)
        tied = set(model.causal_lm.all_tied_weights_keys)
    head = load_file(place / VALUE_HEAD_FILE)
    missing = own.keys() - weights.keys() - tied
    unlike = [
        name for name, value in weights.items() if name not in own or value.shape != own[name].shape
    ]
    shapes = [
        {name: value.shape for name, value in each.items()}
        for each in (head, model.v_head.state_dict())
    ]
    if missing or unlike or shapes[0] != shapes[1]:
        raise Unfit("its weights are not those of this model and adapter")
    return weights, head


def _put_weights(weights: dict[str, Tensor], head: dict[str, Tensor], policy: Policy) -> None:
    model = policy.model
    model.v_head.load_state_dict(head)
    if model.is_adapted:
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model.pretrained_model, weights)
    else:
        model.causal_lm.load_state_dict(weights, strict=False)


def _put(saved: Saved, policy: Policy, ppo: PPO) -> None:
    if ppo.shards:
        policy.model.v_head.load_state_dict(saved.head)
        ppo.shards.put(saved.weights, saved.optimizer)
    else:
        _put_weights(saved.weights, saved.head, policy)
        groups = ppo.optimizer.state_dict()[
            "param_groups"
        ]  # rates are those of this learner's settings
        ppo.optimizer.load_state_dict({"state": saved.optimizer, "param_groups": groups})
    ppo.restore(saved.ppo)


def _set_generator(policy: Policy, state: Tensor) -> None:
    try:
        policy.generator.set_state(state)
    except (
        RuntimeError,
        TypeError,
    ):  # of another kind of device: a stream that this run has not used yet
        policy.generator.manual_seed(policy.generator.initial_seed() + policy.version + 1)


@contextmanager
def _understood(place: Path) -> Iterator[None]:
    """Whatever reading a checkpoint raises as `Unfit`, in words of ours; the log has the library's."""
    try:
        yield
    except Unfit:
        raise
    except FileNotFoundError as error:
        raise Unfit(f"{Path(str(error.filename or place)).name} is missing") from error
    except OSError as error:
        raise Unfit(error.strerror or "it cannot be read") from error
    except Exception as error:
        log.warning("the checkpoint in %s cannot be used", place, exc_info=error)
        raise Unfit("its files are damaged") from error


@contextmanager
def _reported(run_dir: Path) -> Iterator[None]:
    """Whatever writing a checkpoint raises as `RunStoreError`, in words of ours."""
    try:
        yield
    except Exception as error:
        # Each library has its own error for a full disk.
        is_full = "No space left" in str(error) or "StorageFull" in str(error)
        reason = (
            "No space left on device"
            if is_full
            else getattr(error, "strerror", None) or type(error).__name__
        )
        raise RunStoreError(f"No checkpoint was written in {str(run_dir)!r}: {reason}.") from error
