"""Teaches a model the form of replies and no play: it imitates replies that name actions which were drawn at random.

What the form needs is common to all states, so an adapter on all layers learns it in a few dozen steps. It is then
merged, so that the model that comes out is one like any other, on top of which play is learnt.
"""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from llamagym_tui.config import LoraConfig, SFTSettings
from llamagym_tui.engine.learning import checkpoint_folders as folders
from llamagym_tui.engine.learning.scoring import probabilities_of_actions
from llamagym_tui.engine.learning.sft import train_on
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import RunStoreError
from llamagym_tui.game.chat import Conversation
from llamagym_tui.run_folder import FORM_DIR

STEPS = 24
"""Steps of the optimizer; ADR 0020 has what SmolLM2-135M learns in 16, 24 and 32."""
SETTINGS = SFTSettings(epochs=1, min_steps=0, batch_size=4, lr=3e-4)
"""Few rows a step: one forward of them is small, and many small steps teach a form sooner than a few large ones."""
SETTINGS_OF_ALL = SFTSettings(epochs=3, min_steps=0, batch_size=4, lr=3e-3)
"""Where all weights are trained, of a small model: an adapter would have too few to learn words from."""
ROUNDS = 3
"""How often all lessons are gone through at most, until the form is known."""
LESSONS = STEPS * SETTINGS.batch_size
"""Replies that are imitated."""
MEASURED = 16
"""Prompts on which the form is measured."""
KNOWN = 0.9
"""Mean probability of a reply that names an action from which on the form is known, and nothing is taught."""
ADAPTER = LoraConfig(layers="all")


class Form(NamedTuple):
    """How a policy replies where it has learnt nothing else."""

    named: float
    """Mean probability of a known reply that names an admissible action."""
    entropy: float
    """Mean entropy of the action among these, over its maximum; 1: nothing is preferred."""


class FormLearnt(NamedTuple):
    before: Form
    after: Form
    elapsed_s: float

    @property
    def was_known(self) -> bool:
        """Whether the form was known before, so that nothing was taught and no weight has changed."""
        return self.before.named >= KNOWN


def form_of(policy: Policy, lessons: Sequence[Conversation]) -> Form:
    """The form in which a policy replies to the last messages but one of conversations, replies excluded."""
    named = 0.0
    entropies: list[float] = []
    for *before, _ in lessons:
        trie = policy.trie_of(_actions(before))
        (shares,) = probabilities_of_actions(policy, [prompt_after(policy, before)], trie)
        total = sum(shares)
        named += total
        if len(shares) > 1 and total:
            entropy = -sum(p / total * math.log(p / total) for p in shares if p)
            entropies.append(entropy / math.log(len(shares)))
    return Form(named / len(lessons), sum(entropies) / len(entropies) if entropies else 1.0)


def learn_form(
    policy: Policy,
    lessons: Sequence[Conversation],
    *,
    seed: int,
    progress: Callable[[int, int], None],
    should_stop: Callable[[], bool],
) -> FormLearnt:
    """Train a policy on all lessons but the last `MEASURED`, on which the form is measured before and after; where it
    is known already, on none.

    Args:
        lessons: conversations that end with a reply which names an action that was drawn at random, more of them than
            `MEASURED`; no other reply is trained on.
    """
    taught, asked = lessons[:-MEASURED], lessons[-MEASURED:]
    began_s = time.perf_counter()
    before = after = form_of(policy, asked)
    for number in range(ROUNDS):
        if after.named >= KNOWN or should_stop():
            break
        train_on(
            policy,
            taught,
            SETTINGS if policy.model.is_adapted else SETTINGS_OF_ALL,
            seed=seed + number,
            progress=lambda step, steps, loss: progress(step, steps),
            should_stop=should_stop,
        )
        after = form_of(policy, asked)
    return FormLearnt(before, after, time.perf_counter() - began_s)


def save_form(run_dir: Path, policy: Policy, card: str) -> Path:
    """Merge a policy's adapter, if it has one, and write model and tokenizer as a plain folder of the run; the policy
    is spent then.

    Raises:
        RunStoreError: it cannot be written.
    """
    tokenizer = policy.chat.tokenizer
    model = policy.model
    lm: Any = model.merged() if model.is_adapted else model.pretrained_model
    try:
        with folders.written(run_dir, FORM_DIR) as draft:
            lm.save_pretrained(draft)
            tokenizer.save_pretrained(draft)
            (draft / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise RunStoreError(
            f"The model that has learnt the form cannot be written in {run_dir} ({error.strerror or error}); "
            "make room, or name another --run-dir."
        ) from error
    return run_dir / FORM_DIR


def _actions(conversation: Conversation) -> tuple[str, ...] | None:
    actions = conversation[-1].get("actions")
    return None if actions is None else tuple(actions)
