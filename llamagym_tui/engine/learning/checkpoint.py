"""Checkpoints: the model as a standard folder that transformers or PEFT load, and what a learner needs to go on.

Besides the weights a folder holds tensors (of the learner, and the sampling generator) as safetensors and everything
else as msgpack, neither of which can run code. All of it is read and compared with the learner before anything is put
into it.

Each folder is written whole to a draft, synced to the disk, and only then put in place. The latest is ``model``, the
one before it stays in ``model.old``, and others are kept under names of their own, as links to the same files. So after
a crash at any moment a whole one is there. Links that somebody put into the folder are removed, never followed.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace
from safetensors.torch import load_file, save_file
from torch import Tensor

from llamagym_tui.engine.learning.ppo import PPO, LearnerState
from llamagym_tui.engine.model.sources import READ_DEPTH, VALUE_HEAD_FILE
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.runs.run_folder import (
    GOOD_MODEL_DIR,
    MODEL_DIR,
    OLD,
    OLD_MODEL_DIR,
    START_DIR,
    UPDATE_DIR,
)
from llamagym_tui.user_files import (
    discard,
    discard_drafts,
    draft_folder,
    file_content,
    link_folder,
    regular_file,
    require_regular,
    sync_folder,
)

TENSORS = "learner.safetensors"
"""The learner's tensors, and the state of the sampling generator."""
STATE = "learner.msgpack"
"""The state of learner and session, but for tensors."""
MOST_STATE = 2**30
"""Bytes of a learner's state without its tensors; most of it are the episodes under way."""
GENERATOR = "generator"
"""Name of the sampling generator's state among the tensors."""
WORDS = {
    MODEL_DIR: "latest checkpoint",
    OLD_MODEL_DIR: "one before it",
    GOOD_MODEL_DIR: "last good one",
}
"""Checkpoints that a run may go on from, in the order in which they are tried."""

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
    tensors: dict[str, Tensor]
    """The learner's."""
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
    """Write model, tokenizer, learner, random states and the session's counters; the model's folder.

    Args:
        counters: anything that msgspec encodes.
    Raises:
        RunStoreError: it cannot be written; the one before still stands, and nothing is left of the new one.
    """
    tensors = {name: value.contiguous() for name, value in learner.tensors.items()}
    tensors[GENERATOR] = policy.generator.get_state()
    plain = {"learner": learner.state, "version": policy.version, "counters": counters}
    with _written(run_dir, MODEL_DIR) as draft:
        policy.save_pretrained(draft)
        save_file(tensors, draft / TENSORS)
        (draft / STATE).write_bytes(msgspec.msgpack.encode(plain))
    return run_dir / MODEL_DIR


def keep_checkpoint(run_dir: Path, name: str = GOOD_MODEL_DIR) -> Path:
    """Keep the latest checkpoint under a name, and in it the policy that PPO began from, if it is stored; its folder.

    Raises:
        RunStoreError: it cannot be written; what was kept under that name still stands.
    """
    with _written(run_dir, name) as draft:
        link_folder(run_dir / MODEL_DIR, draft)
        if (run_dir / START_DIR).is_dir():
            link_folder(run_dir / START_DIR, draft / START_DIR)
    return run_dir / name


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
    for name, words in WORDS.items():
        place = run_dir / name
        if not place.is_dir():
            if name == MODEL_DIR:
                faults.append(f"the {words} is missing")
            continue
        try:
            saved = _read(place, policy, learner, kind)
        except Unfit as error:
            faults.append(f"the {words} cannot be used ({error})")
            continue
        _put(saved, policy, learner)
        policy.version = saved.version
        _set_generator(policy, saved.generator)
        if not faults:
            return Loaded(saved.counters, "")
        if (run_dir / MODEL_DIR).is_dir():
            with contextlib.suppress(OSError):
                _set_aside(run_dir / MODEL_DIR)
        note = (
            f"{'; '.join(faults)}; the run goes on from the {words}, of update {learner.updates}."
        )
        return Loaded(saved.counters, note[0].upper() + note[1:])
    raise RunStoreError(
        f"No checkpoint can be read in {str(run_dir)!r}: {'; '.join(faults)}; start again in another --run-dir."
    )


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
        start = None
        if learner.reference is not None and (place / START_DIR).is_dir():
            start = _read_weights(place / START_DIR, policy)
    except Unfit as error:
        raise RunStoreError(
            f"The checkpoint in {str(place)!r} cannot be used ({error}); train on."
        ) from error
    if start is not None:
        with _written(run_dir, START_DIR) as draft:
            link_folder(place / START_DIR, draft)
        _put_weights(start, policy)
        learner.reference = EarlierSelf.of(policy)
    state = replace(saved.learner, random=learner.state.random)
    _put(saved._replace(learner=state), policy, learner)
    policy.version += 1
    return place


def save_start(run_dir: Path, policy: Policy) -> Path:
    """Keep the policy after a warm start, which is the learner's reference; its folder.

    Raises:
        RunStoreError: it cannot be written; the one before still stands.
    """
    with _written(run_dir, START_DIR) as draft:
        policy.model.save_pretrained(draft)
    return run_dir / START_DIR


def load_start(run_dir: Path, policy: Policy) -> None:
    """Restore what `save_start` kept, if there is anything, once what a crash has left is removed.

    Raises:
        RunStoreError: it cannot be used.
    """
    with _reported(run_dir):
        _clean(run_dir)
    place = run_dir / START_DIR
    if not place.is_dir():
        return
    try:
        _put_weights(_read_weights(place, policy), policy)
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
        weights = _read_weights(place, policy)
        state = msgspec.convert(plain["learner"], LearnerState)
        if not learner.takes(state, tensors):
            raise Unfit("its optimizer belongs to other weights")
        return Saved(
            weights=weights,
            tensors=tensors,
            generator=generator,
            learner=state,
            version=plain["version"],
            counters=msgspec.convert(plain["counters"], kind),
        )


def _read_weights(place: Path, policy: Policy) -> Weights:
    """The weights in a folder. Raises Unfit: they cannot be read, or are not those of this model."""
    model = policy.model
    own = model.named_weights()
    weights: dict[str, Tensor] = {}
    tied: set[str] = set()  # they may be missing
    with _understood(place):
        if model.is_adapted:
            weights = load_file(place / "adapter_model.safetensors")
        else:
            for file in sorted(place.glob("model*.safetensors")):
                weights |= load_file(file)
            tied = set(model.causal_lm.all_tied_weights_keys)
        head = load_file(place / VALUE_HEAD_FILE)
        head.pop(READ_DEPTH, None)  # the settings say so, too
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
    learner.restore(saved.learner, saved.tensors)


def _set_generator(policy: Policy, state: Tensor) -> None:
    try:
        policy.generator.set_state(state)
    except (RuntimeError, TypeError):
        # It is of another kind of device, so a stream is begun that this run has not used yet.
        policy.generator.manual_seed(policy.generator.initial_seed() + policy.version + 1)


@contextmanager
def _written(run_dir: Path, name: str) -> Iterator[Path]:
    """A new folder to write to, which then takes the place of that name; what stands there stays until then.

    Raises:
        RunStoreError: it cannot be written; nothing is left of it.
    """
    with _reported(run_dir):
        draft = draft_folder(run_dir)
        place = run_dir / name
        old = run_dir / f"{name}{OLD}"
        try:
            yield draft
            for folder, _, files in os.walk(draft):
                for file in files:
                    _sync(Path(folder, file))
                sync_folder(Path(folder))
            if os.path.lexists(place):
                discard(old)  # not before: it may be all that a crash has left
                os.replace(place, old)
            os.replace(draft, place)
            sync_folder(run_dir)
        except Exception:
            discard(draft)
            raise
        if name != MODEL_DIR:
            discard(old)


def _clean(run_dir: Path) -> None:
    """Remove what a crash has left of drafts and of names that were being replaced; what is whole stays or returns."""
    discard_drafts(run_dir)
    names = [GOOD_MODEL_DIR, START_DIR]
    names += [path.stem for path in run_dir.glob(f"{UPDATE_DIR}*{OLD}")]
    for name in names:
        place = run_dir / name
        old = run_dir / f"{name}{OLD}"
        if os.path.lexists(place):
            discard(old)
        elif os.path.lexists(old):
            os.replace(old, place)


def _set_aside(place: Path) -> None:
    """Rename a checkpoint that cannot be read, so that the next ones do not push out the one that was read instead."""
    aside = place.with_name(f"{place.name}.unreadable")
    discard(aside)
    os.replace(place, aside)


def _sync(file: Path) -> None:
    if os.name == "nt":
        return  # it syncs only what is open for writing
    with regular_file(file, most=sys.maxsize) as opened:
        os.fsync(opened.fileno())


@contextmanager
def _understood(place: Path) -> Iterator[None]:
    """Raise errors of reading a checkpoint as `Unfit`, in words of ours; the log has the library's."""
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
    """Raise errors of writing a checkpoint as `RunStoreError`, in words of ours."""
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        # Each library has its own error for a full disk.
        if "No space left" in str(error) or "StorageFull" in str(error):
            reason = "No space left on device"
        raise RunStoreError(f"No checkpoint was written in {str(run_dir)!r}: {reason}.") from error
