"""Checkpoints: the model as a standard folder that transformers or PEFT load, and what a learner needs to go on.

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

from llamagym_tui.engine.learning import checkpoint_folders as folders
from llamagym_tui.engine.learning.ppo import PPO, LearnerState
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.sources import VALUE_HEAD_FILE
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.run_folder import GOOD_MODEL_DIR, MODEL_DIR, OLD_MODEL_DIR, START_DIR
from llamagym_tui.user_files import file_content, link_folder, require_regular

TENSORS = "learner.safetensors"
"""The optimizer's tensors, and the state of the sampling generator."""
STATE = "learner.msgpack"
"""What the learner and the session have become, but for tensors."""
MOST_STATE = 2**30
"""Bytes of a learner's state without its tensors; most of it are the episodes under way."""
GENERATOR = "generator"
"""Name of the sampling generator's state among the tensors."""
WORDS = {
    MODEL_DIR: "latest checkpoint",
    OLD_MODEL_DIR: "one before it",
    GOOD_MODEL_DIR: "last good one",
}
"""Checkpoints that a run may go on from, in the order in which they are tried, in words for people."""

C = TypeVar("C")
log = logging.getLogger(__name__)


class Unfit(Exception):
    """A checkpoint cannot be used; the message is for people."""


class Weights(NamedTuple):
    lm: dict[str, Tensor]
    """The model's, by their names in it; the adapter's alone where there is one."""
    head: dict[str, Tensor]
    """The value head's."""


class Saved(NamedTuple):
    weights: Weights
    optimizer: dict[int, dict[str, Tensor]]
    """The optimizer's tensors for each trained weight, by its number."""
    generator: Tensor
    """State of the sampling generator."""
    learner: LearnerState
    version: int
    """Version of the policy."""
    counters: Any


class Loaded(NamedTuple):
    counters: Any
    note: str
    """For people: which checkpoint was taken, and why; empty if it was the latest one."""


def save_checkpoint(run_dir: Path, policy: Policy, learner: PPO, counters: Any) -> Path:
    """Write model, tokenizer, optimizer, random states and the session's counters; the model's folder.

    Args:
        counters: anything that msgspec encodes.
    Raises:
        RunStoreError: it cannot be written; the one before still stands, and nothing is left of the new one.
    """
    tensors = {
        f"{index}.{name}": value.contiguous()
        for index, of_weight in learner.moments.items()
        for name, value in of_weight.items()
    }
    tensors[GENERATOR] = policy.generator.get_state()
    plain = {"learner": learner.state, "version": policy.version, "counters": counters}
    with _reported(run_dir), folders.written(run_dir, MODEL_DIR) as draft:
        policy.save_pretrained(draft)
        save_file(tensors, draft / TENSORS)
        (draft / STATE).write_bytes(msgspec.msgpack.encode(plain))
    return run_dir / MODEL_DIR


def keep_checkpoint(run_dir: Path, name: str = GOOD_MODEL_DIR) -> Path:
    """Keep the latest checkpoint under a name, to be restored by `roll_back`; its folder.

    Raises:
        RunStoreError: it cannot be written; what was kept under that name still stands.
    """
    with _reported(run_dir):
        return folders.keep(run_dir, name)


def load_checkpoint(
    run_dir: Path, policy: Policy, learner: PPO, kind: type[C] | Any = dict
) -> Loaded:
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
            saved = _read(place, policy, learner, kind)
        except Unfit as error:
            faults.append(f"the {WORDS[name]} cannot be used ({error})")
            continue
        _put(saved, policy, learner)
        policy.version = saved.version
        _set_generator(policy, saved.generator)
        if faults and (run_dir / MODEL_DIR).is_dir():
            with contextlib.suppress(OSError):
                folders.set_aside(run_dir / MODEL_DIR)
        note = ""
        if faults:
            goes_on = f"the run goes on from the {WORDS[name]}, of update {learner.updates}."
            note = f"{'; '.join(faults)}; {goes_on}"
            note = note[0].upper() + note[1:]
        return Loaded(saved.counters, note)
    reason = "; ".join(faults)
    advice = "start again in another --run-dir"
    for name in WORDS:
        place = run_dir / name
        if not place.is_dir():
            continue
        with contextlib.suppress(Unfit), _understood(place):
            require_regular(place)
            _read_weights(place, policy)
            advice = (
                f"the weights in {str(place)!r} are whole: begin another run with them by --model"
            )
            break
    raise RunStoreError(f"No checkpoint can be read in {str(run_dir)!r}: {reason}; {advice}.")


def keep_with_reference(run_dir: Path, policy: Policy, learner: PPO) -> None:
    """Keep the latest checkpoint and the reference, which is about to be replaced, to be restored by `roll_back`.

    Raises:
        RunStoreError: they cannot be written.
    """
    if learner.reference is not None and not (run_dir / START_DIR).is_dir():
        with learner.reference.in_place():
            save_start(run_dir, policy)
    keep_checkpoint(run_dir)


def roll_back(run_dir: Path, policy: Policy, learner: PPO) -> Path:
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
        saved = _read(place, policy, learner, Any)
    except Unfit as error:
        raise RunStoreError(
            f"The checkpoint in {str(place)!r} cannot be used ({error}); train on."
        ) from error
    if learner.reference is not None and (place / START_DIR).is_dir():
        start = _read_start(place / START_DIR, policy)
        with _reported(run_dir), folders.written(run_dir, START_DIR) as draft:
            link_folder(place / START_DIR, draft)
        _put_weights(start, policy)
        learner.reference = Reference(policy)
    state = replace(saved.learner, random=learner.state.random)
    _put(saved._replace(learner=state), policy, learner)
    policy.version += 1
    return place


def save_start(run_dir: Path, policy: Policy) -> Path:
    """Keep the policy after a warm start, which is the learner's reference; its folder.

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
        _put_weights(_read_start(run_dir / START_DIR, policy), policy)


def _read_start(place: Path, policy: Policy) -> Weights:
    """What `save_start` kept. Raises RunStoreError: it cannot be used."""
    try:
        with _understood(place):
            return _read_weights(place, policy)
    except Unfit as error:
        raise RunStoreError(
            f"The policy that PPO began from cannot be used in {str(place)!r} ({error}): "
            "start again in another --run-dir."
        ) from error


def _read(place: Path, policy: Policy, learner: PPO, kind: Any) -> Saved:
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
        weights = _read_weights(place, policy)
        state = msgspec.convert(plain["learner"], LearnerState)
        if not learner.takes(state, optimizer):
            raise Unfit("its optimizer belongs to other weights")
        return Saved(
            weights=weights,
            optimizer=optimizer,
            generator=generator,
            learner=state,
            version=plain["version"],
            counters=msgspec.convert(plain["counters"], kind),
        )


def _read_weights(place: Path, policy: Policy) -> Weights:
    """The weights in a folder. Raises Unfit: they are not those of this model."""
    model = policy.model
    own = model.named_weights()
    weights: dict[str, Tensor] = {}
    tied: set[str] = set()  # they may be missing
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
    head_shapes = {name: value.shape for name, value in head.items()}
    own_head_shapes = {name: value.shape for name, value in model.v_head.state_dict().items()}
    if missing or unlike or head_shapes != own_head_shapes:
        raise Unfit("its weights are not those of this model and adapter")
    return Weights(weights, head)


def _put_weights(weights: Weights, policy: Policy) -> None:
    model = policy.model
    model.v_head.load_state_dict(weights.head)
    if model.is_adapted:
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model.pretrained_model, weights.lm)
    else:
        model.causal_lm.load_state_dict(weights.lm, strict=False)


def _put(saved: Saved, policy: Policy, learner: PPO) -> None:
    _put_weights(saved.weights, policy)
    learner.restore(saved.learner, saved.optimizer)


def _set_generator(policy: Policy, state: Tensor) -> None:
    try:
        policy.generator.set_state(state)
    except (RuntimeError, TypeError):
        # It is of another kind of device, so a stream is begun that this run has not used yet.
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
        if "No space left" in str(error) or "StorageFull" in str(error):
            reason = "No space left on device"
        else:
            reason = getattr(error, "strerror", None) or type(error).__name__
        raise RunStoreError(f"No checkpoint was written in {str(run_dir)!r}: {reason}.") from error
