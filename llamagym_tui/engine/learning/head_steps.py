"""Steps on a few rows of an adapter on the LM head, above a trunk that never changes, and a critic in closed form.

What the trunk says is computed once, mostly in the rollout, and kept, so an update is a handful of steps on small
matrices. They are on the whole batch. Their size follows the KL that they make. The critic is fitted after the update,
on the batch that it judged before.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning.carrying import Seen, carried, seen_in
from llamagym_tui.engine.learning.directions import KEPT_BACK, Read, measure
from llamagym_tui.engine.learning.losses import Made, Objective, UpdateSums, deviation_k3
from llamagym_tui.engine.learning.packing import (
    PackedRows,
    PackedTree,
    Row,
    collate,
    rows_of_turns,
)
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowHead, RidgeCritic
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.policy.trajectory import Turn
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening

STEPS = 8
"""Steps on the whole batch."""
FAR = 2.0
"""Times the KL that an update should make (`update_kl`), at which it ends."""
MUCH_TOO_FAR = 5.0
"""Times that KL, beyond which a step is undone and tried at half its size."""
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
"""The adapter of a prompt (rows of B for the tokens `ids`), its critic, Adam's moments and rate, and the reference."""


class HeadState(msgspec.Struct, frozen=True, kw_only=True):
    prompts: list[str | None]
    """The system prompts that have an adapter, the present one last. None: it is not known yet."""
    seen: list[Seen]
    """Observations of the last batch, by which what was learnt is carried to a new prompt."""


class HeadSteps:
    pace = 1.0
    """Unused: the rate itself follows the KL."""

    def __init__(self, policy: Policy, narrow: NarrowHead) -> None:
        self.policy = policy
        self.narrow = narrow
        self.reference: EarlierSelf | None = None
        self._train_from(narrow.up.detach()[narrow.ids], {}, FIRST_RATE)
        self._parts: list[tuple[PackedRows, Encoded]] = []
        """The batch of the update under way, with what the trunk says of it."""
        self._only_read: list[Turn] = []
        """Its turns with a prompt that is only read."""
        self._prompt: str | None = None
        self._learnt: dict[str | None, Learnt] = {}
        """The other system prompts, each with its adapter and critic."""
        self._seen: list[Seen] = []

    def _train_from(self, rows: Tensor, moments: Mapping[str, Tensor], rate: float) -> None:
        """Train these (m, K) rows of B, those of `narrow.ids`, from Adam's moments on."""
        self._rows = nn.Parameter(rows)
        self.optimizer = _adam(self._rows, rate)
        if moments:
            self.optimizer.state[self._rows] = dict(moments)

    def take(self, rows: Iterable[Row]) -> None:
        """Take the rows of the next update, with what the trunk says of them."""
        turns = list(rows_of_turns(rows))
        firsts = [row.segment.turns[0] for row in turns]
        self._only_read = [turn for turn in firsts if turn.kept_back is not None]
        self._seen = seen_in(turns)
        self._parts = list(self.encoded(turns))

    def parts(self) -> Sequence[tuple[PackedRows, Encoded]]:
        """The batch, with what the trunk says of it."""
        return self._parts

    def encoded(self, rows: Iterable[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        """The turns of rows that the policy chose, with what the trunk says of them, by their admissible replies."""
        by_kind: dict[tuple[ActionTrie, int], dict[Opening, PackedTree]] = {}
        for row in rows_of_turns(rows):
            turn = row.segment.turns[0]
            if not turn.is_trained:
                continue
            trie = self.policy.trie_of(turn.actions)
            prompt = Opening(row.segment.prefix, tuple(row.segment.ids[: turn.start]))
            alike = by_kind.setdefault((trie, turn.wording), {})
            packed = alike.setdefault(prompt, PackedTree(trie.tree))
            packed.rows.append(row)
            packed.paths.append(_paths(row, trie))
        for (trie, wording), by_prompt in by_kind.items():
            part = collate(list(by_prompt.values()), self.narrow.up.device, is_chosen=True)
            yield replace(part, wording=wording), states_of(self.policy, list(by_prompt), trie)

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
            before = self._rows.detach().clone()
            while made < STEPS and kl < FAR * wanted and not (made and should_stop()):
                progress(made, STEPS)
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
            has_moved = not torch.equal(self._rows, before)
        # The next update's steps are larger or smaller, as this update went less far than wanted or further.
        if kl > 1.5 * wanted:
            self._scale_rate(1 / FASTER)
        elif kl < wanted / 1.5:
            self._scale_rate(FASTER)
        self._fit_critic(objective)
        self._parts = []
        return Made(sums, rate, has_moved)

    def descend(
        self,
        rows: Sequence[Row],
        loss_of: Callable[[Tensor], Tensor],
        steps: int,
        made: Callable[[int, float], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """Make steps down a loss of the (D,) log-probabilities of a batch's decisions.

        Each is reported by their number in all and the loss before it. They end early where the loss has no gradient.
        """
        self.take(rows)
        decisions = sum(len(t.decision_logprobs) for row in rows for t in row.segment.turns)
        with self._rows_in_place():
            optimizer = _adam(self._rows, FIRST_RATE)
            for _ in range(steps):
                if should_stop():
                    break
                optimizer.zero_grad(set_to_none=True)
                logprobs = torch.zeros(decisions, device=self.narrow.up.device)
                for part, encoded in self._parts:
                    scored = part.score(encoded, self.policy.generation.temperature)
                    logprobs = logprobs.index_add(0, part.decision_indices, scored.logprobs)
                loss = loss_of(logprobs)
                made(steps, float(loss.detach()))
                if not loss.requires_grad:
                    break
                loss.backward()
                optimizer.step()
        self._parts = []
        self.policy.version += 1

    @contextmanager
    def _rows_in_place(self) -> Iterator[None]:
        """Take the rows to train out of B, and put them back; the batch's states show in which directions they see."""
        measure(self.narrow.down, self._read())
        self._include_new_tokens()
        ids = self.narrow.ids
        with torch.no_grad():
            self._rows.copy_(self.narrow.up[ids])
        self.narrow.rows = self._rows
        try:
            yield
        finally:
            self.narrow.rows = None
            with torch.no_grad():
                self.narrow.up[ids] = self._rows

    def _read(self) -> Iterator[Read]:
        """The batch's prompts, and those that are only read."""
        for part, encoded in self._parts:
            yield Read(part.trees[0], part.wording, encoded)
        by_trie: dict[ActionTrie, dict[Opening, None]] = {}
        for turn in self._only_read:
            assert turn.kept_back is not None, "looked at above"
            by_trie.setdefault(self.policy.trie_of(turn.actions), {})[turn.kept_back] = None
        for trie, prompts in by_trie.items():
            yield Read(trie.tree, KEPT_BACK, states_of(self.policy, list(prompts), trie))

    def _include_new_tokens(self) -> None:
        """Have a row for each token of admissible replies; those of new tokens come last, and begin at 0."""
        ids = self.narrow.ids[: len(self._rows)]
        if len(ids) == len(self.narrow.ids):
            return
        moments = self._moments_in_order(ids, self._moments)
        self._train_from(self._in_order(ids, self._rows.detach()), moments, self._rate)

    @property
    def _moments(self) -> dict[str, Tensor]:
        """Adam's: the number of steps, and two of the shape of the rows; none before the first step."""
        found: dict[str, Tensor] = self.optimizer.state.get(self._rows, {})
        return found

    def _step_near(self, objective: Objective) -> float:
        """Make a step, undone and tried smaller where it goes much too far; the KL of the update up to now."""
        wanted = objective.config.update_kl
        gradient = self._rows.grad
        if gradient is None or not gradient.isfinite().all():
            return 0.0
        rows = self._rows.detach().clone()
        moments = copy.deepcopy(self._moments)
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
            states.append(encoded.hidden[part.turns.rows, part.turns.columns])
            indices.append(part.turns.indices)
        self._critic.fit(torch.cat(states), objective.targets.returns[torch.cat(indices)])

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
    def tensors(self) -> dict[str, Tensor]:
        """The adapter and critic of each prompt, by the prompt's number and a name."""
        learnt = [*self._learnt.values(), self._taken()]
        return {
            f"{number}.{name}": value
            for number, of_prompt in enumerate(learnt)
            for name, value in of_prompt.items()
        }

    def takes(self, tensors: Mapping[str, Tensor]) -> bool:
        return all(
            value.shape == self.narrow.down.shape
            for name, value in tensors.items()
            if name.endswith(".down")
        )

    @property
    def state(self) -> HeadState:
        return HeadState(prompts=[*self._learnt, self._prompt], seen=self._seen)

    def restore(self, state: HeadState | None, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        assert state is not None, "it is of this kind of learner"
        learnt = {
            prompt: _under(f"{number}.", tensors) for number, prompt in enumerate(state.prompts)
        }
        self._prompt = state.prompts[-1]
        self._put(learnt.pop(self._prompt))
        self._learnt = learnt
        self._seen = list(state.seen)

    def use_prompt(self, prompt: str) -> bool:
        """Switch to this prompt's adapter, with its critic, optimizer and reference; True if the prompt is new.

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
        """Let the policy play under a system prompt for a while; gives True if it has another adapter there."""
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
        self._include_new_tokens()
        narrow = self.narrow
        found = {
            "down": narrow.down,
            "ids": narrow.ids,
            "rows": narrow.up[narrow.ids],
            "rate": torch.tensor(self._rate, dtype=torch.float64),
            **_named(MOMENT, self._moments),
            **_named(CRITIC, self._critic.state_dict()),
        }
        if self.reference is not None:
            then = self.reference.weights
            found["reference"] = self._in_order(then["ids"], then["rows"])
        return {name: value.detach().clone() for name, value in found.items()}

    def _begun(self, prompt: str) -> Learnt:
        """The beginning under a new prompt: no moments, and the reference without an adapter."""
        assert self._prompt is not None, "the caller has looked"
        begun = self._nothing()
        adapter = carried(self.policy, self._seen, (self._prompt, prompt))
        if adapter is not None:
            begun["down"] = adapter.down
            begun["ids"] = self.narrow.ids
            begun["rows"] = adapter.rows
            begun["rate"] = torch.tensor(self._rate, dtype=torch.float64)
        return begun

    def _nothing(self) -> Learnt:
        """The state before the first update: no directions, no critic."""
        narrow = self.narrow
        return {
            "down": torch.zeros_like(narrow.down),
            "ids": narrow.ids[:0],
            "rows": narrow.up.detach()[:0],
            "rate": torch.tensor(FIRST_RATE, dtype=torch.float64),
            **_named(CRITIC, RidgeCritic(self._critic.hidden_size).state_dict()),
        }

    @torch.no_grad()
    def _put(self, learnt: Mapping[str, Tensor]) -> None:
        """Go on with what was learnt under a prompt; rows of other tokens are 0."""
        narrow = self.narrow
        ids = learnt["ids"]
        narrow.include(ids.tolist(), ())
        narrow.down.copy_(learnt["down"])
        rows = self._in_order(ids, learnt["rows"])
        narrow.up.zero_()
        narrow.up[narrow.ids] = rows
        if self.reference is not None:
            then = learnt.get("reference", torch.zeros_like(learnt["rows"]))
            weights = {
                "down": narrow.down.clone(),
                "ids": narrow.ids.clone(),
                "rows": self._in_order(ids, then),
            }
            self.reference = EarlierSelf(self.policy, weights, self.reference.version)
        moments = self._moments_in_order(ids, _under(MOMENT, learnt))
        self._train_from(rows, moments, float(learnt["rate"]))
        self._critic.load_state_dict(_under(CRITIC, learnt))

    def _moments_in_order(self, ids: Tensor, moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Adam's moments in the order of `narrow.ids`, and the number of steps as it is."""
        return {
            name: self._in_order(ids, moment) if moment.ndim else moment.clone()
            for name, moment in moments.items()
        }

    def _in_order(self, ids: Tensor, rows: Tensor) -> Tensor:
        """(m, K) the rows of some tokens in the order of `narrow.ids`; those of other tokens are 0."""
        narrow = self.narrow
        found = narrow.up.new_zeros(len(narrow.ids), len(narrow.down))
        found[narrow.among(ids.to(found.device))] = rows.to(found)
        return found


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


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with a prefix before their names."""
    return {prefix + name: value for name, value in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, by the rest of these."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
