"""Steps on a few rows of an adapter on the LM head, above a trunk that never changes, and a critic in closed form.

What the trunk says is computed once, mostly in the rollout, and kept, so an update is a handful of steps on small
matrices. They are on the whole batch. Their size follows the KL that they make. The critic is fitted after the update,
on the batch that it judged before.
"""

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from llamagym_tui.engine.learning.carrying import Seen, carried, seen_in
from llamagym_tui.engine.learning.directions import measure
from llamagym_tui.engine.learning.figures import Made
from llamagym_tui.engine.learning.losses import Objective, UpdateSums, deviation_k3
from llamagym_tui.engine.learning.model_steps import Moments
from llamagym_tui.engine.learning.packing import (
    PackedRows,
    PackedTree,
    Row,
    collate,
    rows_of_turns,
)
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowHead
from llamagym_tui.engine.model.ridge import RidgeCritic
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

STEPS = 8
"""Steps on the whole batch."""
FAR = 2.0
"""Times the KL that an update should make (`update_kl`), at which it ends."""
MUCH_TOO_FAR = 5.0
"""Times that KL, beyond which a step is undone, and tried at half its size."""
MOST_TRIALS = 4
FASTER = 1.3
"""Factor by which the rate grows or falls from one update to the next."""
FIRST_RATE = 0.01
"""Adam's learning rate at first: whitened features are about 1, so it does not depend on the model."""
LEAST_RATE = 1e-5
MOST_RATE = 0.015
MOMENT = "adam."
"""Before the names of Adam's moments, in what was learnt under a prompt."""
CRITIC = "critic."
"""Before the names of the critic's tensors there."""
Learnt = dict[str, Tensor]
"""What was learnt under a prompt: the adapter, its critic, Adam's moments and rate, and the reference."""


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str | None = None
    """The system prompt under which the adapter is trained. None: not known yet."""
    learnt: dict[str, bytes] = msgspec.field(default_factory=dict)
    """`Learnt` of each system prompt, the present one included, as safetensors."""
    seen: list[Seen] = msgspec.field(default_factory=list)
    """Observations of the last batch, by which what was learnt is carried to a new prompt."""


class HeadSteps:
    pace = 1.0
    """Unused: the rate itself follows the KL."""

    def __init__(self, policy: Policy, narrow: NarrowHead, generator: random.Random) -> None:
        self.policy = policy
        self.narrow = narrow
        self.random = generator
        """Unused: nothing is drawn, and the state keeps it for a learner of the other kind."""
        self.reference: Reference | None = None
        self.weights = [p for p in policy.model.pretrained_model.parameters() if p.requires_grad]
        """The policy's weights that are trained."""
        self._rows = nn.Parameter(narrow.up.new_zeros(0, len(narrow.down)))
        """(T, K) rows of B of the tokens that are trained."""
        self._tokens: list[int] = []
        """Their tokens, ascending."""
        self.optimizer = _adam(self._rows, FIRST_RATE)
        self._parts: list[tuple[PackedRows, Encoded]] = []
        """The batch of the update under way, with what the trunk says of it."""
        self._prompt: str | None = None
        self._learnt: dict[str, Learnt] = {}
        """What was learnt under the other system prompts."""
        self._seen: list[Seen] = []

    def take(self, rows: Iterable[Row]) -> None:
        """Take the rows of the next update, with what the trunk says of them."""
        turns = list(rows_of_turns(rows))
        self._seen = seen_in(turns)
        self._parts = list(self.encoded(turns))

    def parts(self) -> Sequence[tuple[PackedRows, Encoded]]:
        """The batch, with what the trunk says of it."""
        return self._parts

    def encoded(self, rows: Iterable[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        """The turns of rows that the policy chose, with what the trunk says of them, by their admissible replies."""
        by_trie: dict[ActionTrie, dict[Opening, PackedTree]] = {}
        for row in rows_of_turns(rows):
            turn = row.segment.turns[0]
            if not turn.is_trained:
                continue
            trie = self.policy.trie_of(turn.actions)
            prompt = Opening(row.segment.prefix, tuple(row.segment.ids[: turn.start]))
            packed = by_trie.setdefault(trie, {}).setdefault(prompt, PackedTree(trie.tree))
            packed.rows.append(row)
            packed.paths.append(_paths(row, trie))
        for trie, by_prompt in by_trie.items():
            part = collate(list(by_prompt.values()), self.narrow.up.device, is_chosen=True)
            yield part, states_of(self.policy, list(by_prompt), trie)

    def train(
        self,
        objective: Objective,
        lr: float,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Made:
        """Make steps on the whole batch, then fit the critic; the scheduled rate is not used."""
        sums = UpdateSums()
        rate = self._rate
        kl = 0.0
        made = 0
        wanted = objective.config.update_kl
        with self._rows_in_place():
            while made < STEPS and kl < FAR * wanted and not (made and should_stop()):
                progress(made, STEPS)
                sums.begin_epoch()
                of_step = UpdateSums()
                self.optimizer.zero_grad(set_to_none=True)
                losses = [
                    objective.loss(part, encoded, of_step, is_first=made == 0)
                    for part, encoded in self._parts
                ]
                if losses:
                    loss = torch.stack(losses).sum() / max(of_step.turns, 1)
                    loss.backward()
                if self._rows.grad is not None:
                    of_step.grad_norms.append(self._rows.grad.norm())
                sums.include(of_step)
                kl = self._step_near(objective)
                made += 1
        # The next update's steps are larger or smaller, as this update went less far than wanted or further.
        if kl > 1.5 * wanted:
            self._scale_rate(1 / FASTER)
        elif kl < wanted / 1.5:
            self._scale_rate(FASTER)
        self._fit_critic(objective)
        self._parts = []
        return Made(sums, rate)

    def descend(
        self,
        rows: Sequence[Row],
        loss_of: Callable[[Tensor], Tensor],
        steps: int,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> list[float]:
        """Make steps down a loss of the (D,) log-probabilities of a batch's decisions; the loss before each.

        It ends early where the loss has no gradient.
        """
        self.take(rows)
        decisions = sum(len(t.decision_logprobs) for row in rows for t in row.segment.turns)
        losses: list[float] = []
        with self._rows_in_place():
            optimizer = _adam(self._rows, FIRST_RATE)
            while len(losses) < steps and not should_stop():
                optimizer.zero_grad(set_to_none=True)
                logprobs = torch.zeros(decisions, device=self.narrow.up.device)
                for part, encoded in self._parts:
                    scored = part.score(encoded, self.policy.generation.temperature)
                    logprobs = logprobs.index_add(0, part.decisions.indices, scored.logprobs)
                loss = loss_of(logprobs)
                losses.append(float(loss.detach()))
                progress(len(losses), steps, losses[-1])
                if not loss.requires_grad:
                    break
                loss.backward()
                optimizer.step()
        self._parts = []
        self.policy.version += 1
        return losses

    @contextmanager
    def _rows_in_place(self) -> Iterator[None]:
        """Take the rows to train out of B, and put them back; the batch's states show in which directions they see."""
        measure(self.narrow.down, [(part.trees[0], each) for part, each in self._parts])
        if self.narrow.trained != self._tokens:
            self._regroup(self.narrow.trained)
        with torch.no_grad():
            self._rows.copy_(self.narrow.up[self._tokens])
        self.narrow.rows = self._rows
        try:
            yield
        finally:
            self.narrow.rows = None
            with torch.no_grad():
                self.narrow.up[self._tokens] = self._rows

    def _step_near(self, objective: Objective) -> float:
        """Make a step, undone and tried smaller where it goes much too far; the KL of the update up to now."""
        wanted = objective.config.update_kl
        gradient = self._rows.grad
        if gradient is None or not gradient.isfinite().all():
            return 0.0
        rows = self._rows.detach().clone()
        moments = copy.deepcopy(self.optimizer.state.get(self._rows, {}))
        for _ in range(MOST_TRIALS):
            self.optimizer.step()
            kl = self._kl(objective)
            if kl <= MUCH_TOO_FAR * wanted:
                return kl
            with torch.no_grad():
                self._rows.copy_(rows)
            self.optimizer.state[self._rows] = copy.deepcopy(moments)
            self._scale_rate(0.5)
        return FAR * wanted  # not even a small step stays near, so the update ends here

    @property
    def _rate(self) -> float:
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    def _scale_rate(self, factor: float) -> None:
        rate = min(max(self._rate * factor, LEAST_RATE), MOST_RATE)
        self.optimizer.param_groups[0]["lr"] = rate

    @torch.no_grad()
    def _kl(self, objective: Objective) -> float:
        """Nats a turn by which the batch's decisions have moved since they were made (k3)."""
        total = 0.0
        turns = 0
        for part, encoded in self._parts:
            scored = part.score(encoded, objective.temperature)
            total += float(deviation_k3(scored.logprobs - part.old_logprobs).sum())
            turns += len(part.turns.indices)
        return total / max(turns, 1)

    @torch.no_grad()
    def _fit_critic(self, objective: Objective) -> None:
        """Let the critic take in the batch's returns, if there is one."""
        if not objective.config.has_critic or not self._parts:
            return
        states: list[Tensor] = []
        indices: list[Tensor] = []
        for part, encoded in self._parts:
            credited = part.credited(objective.config.credit)
            states.append(encoded.hidden[credited.rows, credited.columns])
            indices.append(credited.indices)
        every = torch.cat(indices)
        targets = objective.targets
        self._critic.fit(torch.cat(states), targets.returns[every], targets.value_weights[every])

    @property
    def _critic(self) -> RidgeCritic:
        critic = self.policy.model.v_head
        assert isinstance(critic, RidgeCritic), "made with the adapter"
        return critic

    def why_it_stood_still(self, sums: UpdateSums, lr: float) -> str:
        """The cause for which an update has not moved the policy; steps that were undone as too far are none."""
        if self.narrow.down.any():
            return ""
        return (
            "an adapter on the LM head alone sees in what states differ, and these differ in nothing: "
            "--set lora.layers=all trains the layers"
        )

    @property
    def moments(self) -> Moments:
        """None: the state has them, by prompt."""
        return {}

    def takes(self, moments: Moments) -> bool:
        return not moments

    @property
    def state(self) -> HeadState:
        learnt = {**self._learnt, self._prompt or "": self._taken()}
        kept = {prompt: save(tensors) for prompt, tensors in learnt.items()}
        return HeadState(prompt=self._prompt, learnt=kept, seen=self._seen)

    def restore(self, state: HeadState | None, moments: Moments) -> None:
        """Go on from a state."""
        assert state is not None, "it is of this kind of learner"
        self._learnt = {prompt: load(learnt) for prompt, learnt in state.learnt.items()}
        self._prompt = state.prompt
        self._seen = list(state.seen)
        self._put(self._learnt.pop(state.prompt or ""))

    def use_prompt(self, prompt: str) -> bool:
        """Switch to this prompt's adapter, with its critic, optimizer and reference; True if it is another one.

        Hidden states shift so far between prompts that an adapter learnt under one is meaningless under another. The
        adapter of a new prompt begins with what the present one has learnt (`carried`).
        """
        if self._prompt is None:
            self._prompt = prompt
        if prompt == self._prompt:
            return False
        new = self._learnt.pop(prompt) if prompt in self._learnt else self._begun(prompt)
        self._learnt[self._prompt] = self._taken()
        self._prompt = prompt
        self._put(new)
        return True

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[bool]:
        """Let the policy play under a system prompt for a while; gives whether its adapter is another one."""
        before = self._prompt
        is_new = prompt not in self._learnt
        if before is None or not self.use_prompt(prompt):
            yield False
            return
        try:
            yield True
        finally:
            self.use_prompt(before)
            if is_new:
                del self._learnt[prompt]

    def begin_anew(self) -> bool:
        """Forget what was learnt under every prompt, as states stand elsewhere in prompts of another form."""
        self._learnt.clear()
        self._seen = []
        self._put(self._nothing())
        return True

    def _taken(self) -> Learnt:
        """Copies of what was learnt under the present prompt."""
        found = self._named(self.narrow.down, self.narrow.up, self._critic)
        for name, moment in self.optimizer.state.get(self._rows, {}).items():
            found[MOMENT + name] = moment
        if self.reference is not None:
            found["reference"] = self._reference_up(self.reference)[self.narrow.ids]
        return {name: value.detach().clone() for name, value in found.items()}

    def _begun(self, prompt: str) -> Learnt:
        """What learning under a new prompt begins with: no moments, and the reference without an adapter."""
        assert self._prompt is not None, "the caller has looked"
        learnt = carried(self.policy, self._critic, self._seen, (self._prompt, prompt))
        return self._nothing() if learnt is None else self._named(*learnt)

    def _nothing(self) -> Learnt:
        """What is known before the first update: no directions, no critic."""
        return {
            "down": torch.zeros_like(self.narrow.down),
            "rate": torch.tensor(FIRST_RATE, dtype=torch.float64),
            **_of_critic(RidgeCritic(self._critic.hidden_size)),
        }

    def _named(self, down: Tensor, up: Tensor, critic: nn.Module) -> Learnt:
        """An adapter and its critic, with the present rate."""
        ids = self.narrow.ids
        return {
            "down": down,
            "ids": ids,
            "up": up[ids],
            "tokens": torch.tensor(self._tokens, dtype=torch.long),
            "rate": torch.tensor(self._rate, dtype=torch.float64),
            **_of_critic(critic),
        }

    @torch.no_grad()
    def _put(self, learnt: Mapping[str, Tensor]) -> None:
        """Go on with what was learnt under a prompt; weights that it has nothing of are 0."""
        narrow = self.narrow
        no_tokens = torch.empty(0, dtype=torch.long)
        ids = learnt.get("ids", no_tokens)
        self._tokens = learnt.get("tokens", no_tokens).tolist()
        narrow.include(ids.tolist(), self._tokens)
        narrow.down.copy_(learnt["down"])
        rows_of = {"up": narrow.up.data}
        if self.reference is not None:
            rows_of["reference"] = self._reference_up(self.reference)
        for name, rows in rows_of.items():
            rows.zero_()
            if name in learnt:
                rows[ids.to(rows.device)] = learnt[name].to(rows)
        self._rows = nn.Parameter(narrow.up.new_zeros(len(self._tokens), len(narrow.down)))
        self.optimizer = _adam(self._rows, float(learnt["rate"]))
        if moments := _under(MOMENT, learnt):
            self.optimizer.state[self._rows] = {
                name: value.clone() for name, value in moments.items()
            }
        self._critic.load_state_dict(_under(CRITIC, learnt))

    def _reference_up(self, reference: Reference) -> Tensor:
        """(V, K) B, as the reference has it."""
        return next(then for weight, then in reference.start if weight is self.narrow.up)

    def _regroup(self, tokens: Sequence[int]) -> None:
        """Have a row for each of these tokens; Adam's moments of those that there were before go along."""
        place_before = {token: place for place, token in enumerate(self._tokens)}
        moments = self.optimizer.state.get(self._rows, {})
        shape = (len(tokens), len(self.narrow.down))
        rows = nn.Parameter(self.narrow.up.new_zeros(shape))
        optimizer = _adam(rows, self._rate)
        for name, before in moments.items():
            now = before
            if name != "step":
                now = before.new_zeros(shape)
                for place, token in enumerate(tokens):
                    if token in place_before:
                        now[place] = before[place_before[token]]
            optimizer.state[rows][name] = now
        self._tokens = list(tokens)
        self._rows = rows
        self.optimizer = optimizer


def _paths(row: Row, trie: ActionTrie) -> list[list[int]]:
    """The paths of a row of one turn in columns of `states_of`: that of the chosen reply, then those of all."""
    turn = row.segment.turns[0]
    assert turn.choice is not None, "an adapter on the head alone chooses by score"
    # The prompt's last token is in column 0, and node k in column 1 + k.
    before = [0] * turn.start
    replies = [[*before, *(node + 1 for node in path)] for path in trie.paths]
    return [replies[turn.choice.chosen], *replies]


def _adam(rows: nn.Parameter, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam([rows], lr=rate, betas=(0.9, 0.999))


def _of_critic(critic: nn.Module) -> Learnt:
    return {CRITIC + name: value for name, value in critic.state_dict().items()}


def _under(prefix: str, learnt: Mapping[str, Tensor]) -> Learnt:
    """What of it has names with a prefix, by the rest of these."""
    return {
        name.removeprefix(prefix): value
        for name, value in learnt.items()
        if name.startswith(prefix)
    }
