"""PPO on a trunk that is never changed: a few rows of an adapter on the head, and a critic in closed form.

Whatever depends on the trunk is computed once, mostly in the rollout, and kept; an update is then a handful of steps on
small matrices. It differs from `PPO` in what follows from that: steps are on the whole batch, their size follows the KL
that they make, and the critic is fitted after the update, on the batch that it judged before.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.carrying import Seen, carried, seen_in
from llamagym_tui.engine.learning.directions import measure
from llamagym_tui.engine.learning.losses import deviation_k3, reference_kl
from llamagym_tui.engine.learning.packing import (
    PackedRows,
    PackedTree,
    Row,
    batch_rows,
    collate,
    rows_of_turns,
)
from llamagym_tui.engine.learning.ppo import PPO, PPOState, Scored, Trained
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.learning.targets import Targets, turn_sums
from llamagym_tui.engine.learning.update_stats import UpdateSums
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.ridge import RidgeCritic
from llamagym_tui.engine.policy.fixed_trunk import states_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn
from llamagym_tui.engine.ranks import ALONE, Ranks
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
PREFERRED = 1.0
"""Nats by which a reply is to be likelier than the one that it is preferred to."""
MOMENT = "adam."
"""Before the names of Adam's moments, in what was learnt under a prompt."""
CRITIC = "critic."
"""Before the names of the critic's tensors there."""


class HeadState(PPOState, frozen=True, kw_only=True):
    prompt: str | None = None
    """The system prompt under which the adapter is trained. None: nobody has said so."""
    learnt: dict[str, bytes] = msgspec.field(default_factory=dict)
    """What was learnt under each system prompt, this one too, as safetensors."""
    seen: list[Seen] = msgspec.field(default_factory=list)
    """Observations of the last batch, by which what was learnt is carried to a new prompt."""


class HeadPPO(PPO):
    def __init__(
        self, policy: Policy, config: PPOConfig, seed: int = 0, ranks: Ranks = ALONE
    ) -> None:
        """The reference is the policy as it is now."""
        super().__init__(policy, config, seed, ranks)
        assert policy.narrow is not None, "the caller has looked"
        self.narrow = policy.narrow
        self._rows = nn.Parameter(self.narrow.up.new_zeros(0, len(self.narrow.down)))
        """(T, K) rows of B of the tokens that are trained."""
        self._tokens: list[int] = []
        """Their tokens, ascending."""
        self.optimizer = _adam(self._rows, FIRST_RATE)
        self._parts: list[tuple[PackedRows, Encoded]] = []
        """The batch of the update under way, with what the trunk says of it."""
        self._prompt: str | None = None
        """The system prompt under which the adapter is trained. None: nobody has said so yet."""
        self._learnt: dict[str, dict[str, Tensor]] = {}
        """What was learnt under the other system prompts."""
        self._seen: list[Seen] = []
        """Observations of the last batch."""

    @property
    def state(self) -> HeadState:
        return HeadState(
            **msgspec.structs.asdict(super().state),
            prompt=self._prompt,
            learnt={
                prompt: save(learnt)
                for prompt, learnt in [*self._learnt.items(), (self._prompt or "", self._taken())]
            },
            seen=self._seen,
        )

    def takes(self, moments: Mapping[int, Mapping[str, Tensor]]) -> bool:
        """Whether the tensors of an optimizer are of one weight with as many columns as the adapter has directions."""
        for index, of_weight in moments.items():
            for name, value in of_weight.items():
                is_fitting = value.dim() == 2 and value.shape[1] == len(self.narrow.down)
                if index != 0 or (name != "step" and not is_fitting):
                    return False
        return True

    def restore(self, state: PPOState) -> None:
        """Go on from a state; the optimizer has got its tensors already."""
        super().restore(state)
        assert isinstance(state, HeadState), "it is of this kind of learner"
        self._learnt = {prompt: load(learnt) for prompt, learnt in state.learnt.items()}
        self._prompt = state.prompt
        self._seen = list(state.seen)
        learnt = self._learnt.pop(state.prompt or "", None)
        # An earlier version kept the adapter alone, and that is in place.
        if learnt is not None:
            self._put(learnt)

    def use_prompt(self, prompt: str) -> bool:
        """Go on with what was learnt under a system prompt; whether that is another one.

        Under another prompt all states stand far from where they were, in directions in which an adapter does not tell
        them apart: what it was taught means nothing there. So each prompt has an adapter of its own, with its critic,
        optimizer and reference. That of a new prompt begins with what the present one has learnt (`carried`).
        """
        if self._prompt is None:
            self._prompt = prompt
        if prompt == self._prompt:
            return False
        new = self._begun(prompt) if prompt not in self._learnt else self._learnt.pop(prompt)
        self._learnt[self._prompt] = self._taken()
        self._prompt = prompt
        self._put(new)
        self.used.clear()  # of which an inspector asks what the policy of now says
        self.policy.version += 1
        return True

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[None]:
        """The policy plays meanwhile with what was learnt under a system prompt, or with what is carried to it."""
        before = self._prompt
        if before is None or prompt == before:
            yield
            return
        used = list(self.used)
        version = self.policy.version
        is_new = prompt not in self._learnt
        self.use_prompt(prompt)
        try:
            yield
        finally:
            self.use_prompt(before)
            self.used.extend(used)
            self.policy.version = version
            if is_new:
                del self._learnt[prompt]

    def begin_anew(self) -> None:
        """Forget what was learnt under every prompt, as states stand elsewhere in prompts of another form."""
        self._learnt.clear()
        self._seen = []
        self._put(self._nothing())
        self.used.clear()
        self.policy.version += 1

    def _taken(self) -> dict[str, Tensor]:
        """Copies of what was learnt under the present prompt."""
        narrow = self.narrow
        found = self._named(narrow.down, narrow.up, self.policy.model.v_head)
        for name, moment in self.optimizer.state.get(self._rows, {}).items():
            found[MOMENT + name] = moment
        if self.reference is not None:
            found["reference"] = self._reference_up(self.reference)[narrow.ids]
        return {name: value.detach().clone() for name, value in found.items()}

    def _begun(self, prompt: str) -> dict[str, Tensor]:
        """With what learning under a new prompt begins: no moments, and the reference without an adapter."""
        critic = self.policy.model.v_head
        assert isinstance(critic, RidgeCritic), "made with the adapter"
        assert self._prompt is not None, "the caller has looked"
        learnt = carried(self.policy, critic, self._seen, (self._prompt, prompt))
        if learnt is not None:
            return self._named(*learnt)
        return self._nothing()

    def _nothing(self) -> dict[str, Tensor]:
        """What is known before the first update: no directions, no critic."""
        return {
            "down": torch.zeros_like(self.narrow.down),
            "rate": torch.tensor(FIRST_RATE, dtype=torch.float64),
            **_of_critic(RidgeCritic(self.policy.model.v_head.hidden_size)),
        }

    def _named(self, down: Tensor, up: Tensor, critic: nn.Module) -> dict[str, Tensor]:
        """An adapter and its critic, with the rate of now."""
        ids = self.narrow.ids
        return {
            "down": down,
            "ids": ids,
            "up": up[ids],
            "tokens": torch.tensor(self._tokens, dtype=torch.long),
            "rate": torch.tensor(self.optimizer.param_groups[0]["lr"], dtype=torch.float64),
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
        rows_of: dict[str, Tensor] = {"up": narrow.up}
        if self.reference is not None:
            rows_of["reference"] = self._reference_up(self.reference)
        for name, rows in rows_of.items():
            rows.zero_()
            if name in learnt:
                rows[ids.to(rows.device)] = learnt[name].to(rows)
        self._rows = nn.Parameter(narrow.up.new_zeros(len(self._tokens), len(narrow.down)))
        self.optimizer = _adam(self._rows, float(learnt["rate"]))
        moments = {
            name.removeprefix(MOMENT): value.clone()
            for name, value in learnt.items()
            if name.startswith(MOMENT)
        }
        if moments:
            self.optimizer.state[self._rows] = moments
        critic = {
            name.removeprefix(CRITIC): value
            for name, value in learnt.items()
            if name.startswith(CRITIC)
        }
        self.policy.model.v_head.load_state_dict(critic)

    def _reference_up(self, reference: Reference) -> Tensor:
        """(V, K) B, as the reference has it."""
        return next(then for weight, then in reference.start if weight is self.narrow.up)

    @property
    def is_warming_up(self) -> bool:
        """Never: a critic that knows nothing yet gives every state the same value."""
        return False

    def targets(self, trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> Targets:
        self._take_in(rows)
        return super().targets(trajectories, rows)

    def reference_logprobs(self, rows: Sequence[Row], decisions: int) -> Tensor:
        """(D,) log-probability of each decision under the reference."""
        assert self.reference is not None, "the caller has looked"
        logprobs = torch.zeros(decisions, device=self.narrow.up.device)
        with torch.no_grad(), self.reference.in_place():
            for part, encoded in self._parts:
                scored = part.score(encoded, self.policy.generation.temperature)
                logprobs[part.decisions.indices] = scored.logprobs
        return logprobs

    def _decision_values(self, turns: Sequence[Turn], rows: Sequence[Row]) -> Tensor:
        values = torch.tensor([turn.value for turn in turns for _ in turn.decision_logprobs])
        for part, encoded in self._parts:
            states = encoded.hidden[part.decisions.rows, part.decisions.columns]
            values[part.decisions.indices.cpu()] = self.policy.model.v_head(states).cpu()
        return values

    def train(
        self,
        rows: Sequence[Row],
        targets: Targets,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Trained:
        """Steps on the whole batch, then the critic's fit."""
        self._measure()
        self._take_rows()
        sums = UpdateSums()
        rate = self.optimizer.param_groups[0]["lr"]
        kl = 0.0
        made = 0
        wanted = self.config.update_kl
        while made < STEPS and kl < FAR * wanted and not (made and should_stop()):
            progress(made, STEPS)
            of_step = UpdateSums()
            self.optimizer.zero_grad(set_to_none=True)
            loss = self._loss_of_batch(targets, of_step, is_first=made == 0)
            loss.backward()
            if self._rows.grad is not None:
                of_step.grad_norms.append(self._rows.grad.norm())
            sums.begin_epoch()
            sums.include(of_step)
            kl = self._step_near()
            made += 1
        # The next update's steps are larger or smaller, as this update went less far than wanted or further.
        if kl > 1.5 * wanted:
            self._scale_rate(1 / FASTER)
        elif kl < wanted / 1.5:
            self._scale_rate(FASTER)
        self._put_rows()
        self._fit_critic(targets)
        self._parts = []
        return Trained(sums, float(made), rate)

    def imitate(
        self,
        trajectories: Sequence[Trajectory],
        steps: int,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> list[float]:
        """Move towards the replies of demonstrations; the loss before each step that was made, in nats a token.

        Args:
            trajectories: demonstrations, with turns that count as the policy's own.
            steps: on all of them together.
            progress: called after each step with those made, those of all, and the loss.
            should_stop: called before each step; True ends it, and the steps made stay.
        """
        turns = [turn for each in trajectories for turn in each.turns if turn.is_trained]
        tokens = sum(len(turn.decision_logprobs) for turn in turns)

        def loss_of(logprobs: Tensor) -> Tensor:
            return -logprobs.sum() / max(tokens, 1)

        return self._learn_from(trajectories, loss_of, steps, progress, should_stop)

    def prefer(
        self,
        pairs: Sequence[tuple[Trajectory, Trajectory]],
        beta: float,
        steps: int,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> list[float]:
        """Move towards the first reply of each pair and away from the second; DPO's loss before each step.

        Source: arXiv:2305.18290, equation 7. It ends once each first reply is likelier than the second by `PREFERRED`
        nats, as further steps would take the first one everywhere.

        Args:
            pairs: the same conversation with either reply, which is the one turn of it that counts as the policy's own.
            beta: how much a change from the policy before counts.
            steps: at most, on all of them together.
            progress: as in `imitate`.
            should_stop: as in `imitate`.
        """
        trajectories = [each for pair in pairs for each in pair]
        turns = [turn for each in trajectories for turn in each.turns]
        is_own = torch.tensor([turn.is_trained for turn in turns])
        before: Tensor | None = None
        margin = torch.zeros(0)  # (P,) nats by which each first reply is likelier

        def loss_of(logprobs: Tensor) -> Tensor:
            nonlocal before, margin
            of_replies = turn_sums(turns, logprobs)[is_own].view(-1, 2)
            margin = of_replies[:, 0] - of_replies[:, 1]
            if before is None:
                before = margin.detach()
            return -nn.functional.logsigmoid(beta * (margin - before)).mean()

        def is_enough() -> bool:
            return should_stop() or bool(len(margin) and (margin >= PREFERRED).all())

        return self._learn_from(trajectories, loss_of, steps, progress, is_enough)

    def _learn_from(
        self,
        trajectories: Sequence[Trajectory],
        loss_of: Callable[[Tensor], Tensor],
        steps: int,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> list[float]:
        """Steps down a loss of the (D,) log-probabilities of all decisions, 0 where someone else chose; the loss before
        each."""
        turns = [turn for each in trajectories for turn in each.turns]
        decisions = sum(len(turn.decision_logprobs) for turn in turns)
        self._take_in(batch_rows(trajectories))
        self._measure()
        self._take_rows()
        optimizer = _adam(self._rows, FIRST_RATE)
        losses: list[float] = []
        while len(losses) < steps and not should_stop():
            optimizer.zero_grad(set_to_none=True)
            logprobs = torch.zeros(decisions, device=self.narrow.up.device)
            for part, encoded in self._parts:
                scored = part.score(encoded, self.policy.generation.temperature)
                logprobs = logprobs.index_add(0, part.decisions.indices, scored.logprobs)
            loss = loss_of(logprobs)
            if loss.requires_grad:
                loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            progress(len(losses), steps, losses[-1])
        self._put_rows()
        self._parts = []
        self.policy.version += 1
        return losses

    def _take_in(self, rows: Sequence[Row]) -> None:
        turns = list(rows_of_turns(rows))
        self._seen = seen_in(turns)
        self._parts = list(self.encoded(turns))

    def _measure(self) -> None:
        """Take up directions in which the batch's prompts differ, whatever was replied to them."""
        measure(self.narrow.down, [(part.trees.trees[0], each) for part, each in self._parts])

    def _prompt_of(self, row: Row) -> tuple[ActionTrie, Opening]:
        """The admissible replies and the prompt of a row of one turn."""
        turn = row.segment.turns[0]
        before = tuple(row.segment.ids[: turn.start])
        return self.policy.trie_of(turn.actions), Opening(row.segment.prefix, before)

    def why_it_stood_still(self, sums: UpdateSums, lr: float, *, has_advantages: bool) -> str:
        """The cause for which an update has not moved the policy; steps that were undone as too far are none."""
        if has_advantages and not self.narrow.down.any():
            return (
                "an adapter on the LM head alone sees in what states differ, and these differ in nothing: "
                "--set lora.layers=all trains the layers"
            )
        return ""

    def encoded(self, rows: Iterable[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        """The turns of rows that the policy chose, with what the trunk says of them, by their admissible replies."""
        by_trie: dict[ActionTrie, dict[Opening, PackedTree]] = {}
        for row in rows_of_turns(rows):
            if row.segment.turns[0].is_trained:
                trie, prompt = self._prompt_of(row)
                packed = by_trie.setdefault(trie, {}).setdefault(prompt, PackedTree(trie.tree))
                packed.rows.append(row)
                packed.paths.append(_paths(row, trie))
        for trie, by_prompt in by_trie.items():
            part = collate((), list(by_prompt.values()), self.narrow.up.device, is_chosen=True)
            yield part, states_of(self.policy, list(by_prompt), trie)

    def bootstraps(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Value after the last turn of each: V(final observation) if truncated, else 0."""
        values = [0.0] * len(trajectories)
        prompts: dict[int, Opening] = {}
        for index, trajectory in enumerate(trajectories):
            final = trajectory.final_prompt
            if trajectory.end == "truncated" and final is not None:
                prompts[index] = Opening(final.prefix, tuple(final.ids))
        if prompts:
            states = states_of(self.policy, list(prompts.values()), self.policy.trie)
            found = self.policy.model.v_head(states.hidden[:, 0]).tolist()
            for index, value in zip(prompts, found, strict=True):
                values[index] = value
        return values

    def _loss_of_batch(self, targets: Targets, sums: UpdateSums, *, is_first: bool) -> Tensor:
        """() mean over the batch's turns of policy, entropy and KL loss."""
        config = self.config
        total = torch.zeros(())
        turns = 0
        for part, encoded in self._parts:
            scored = part.score(encoded, self.policy.generation.temperature)
            log_ratios = (scored.logprobs - part.old_logprobs).detach()
            sums.log_ratios.append((part.decisions.indices, log_ratios))
            sums.actions.append(part.action_shares(scored))
            found = Scored(part, scored, encoded)
            policy = self.policy_loss(found, targets)
            loss = policy.loss - self.entropy_coef * scored.action_entropy.sum()
            if config.kl_form == "loss" and targets.reference_logprobs is not None:
                reference = targets.reference_logprobs[part.decisions.indices]
                loss = loss + self.kl_coef * reference_kl(scored.logprobs, reference).sum()
            critic = self.critic_loss(found, targets)
            sums.add(policy, critic, scored, len(part.turns.indices), is_first=is_first)
            total = total + loss
            turns += len(part.turns.indices)
        return total / max(turns, 1)

    def _step_near(self) -> float:
        """One step, undone and tried smaller where it goes much too far; the KL of the update up to now."""
        gradient = self._rows.grad
        if gradient is None or not gradient.isfinite().all():
            return 0.0
        rows = self._rows.detach().clone()
        moments = copy.deepcopy(self.optimizer.state.get(self._rows, {}))
        for _ in range(MOST_TRIALS):
            self.optimizer.step()
            kl = self._kl()
            if kl <= MUCH_TOO_FAR * self.config.update_kl:
                return kl
            with torch.no_grad():
                self._rows.copy_(rows)
            self.optimizer.state[self._rows] = copy.deepcopy(moments)
            self._scale_rate(0.5)
        return (
            FAR * self.config.update_kl
        )  # not even a small step stays near, so the update ends here

    def _scale_rate(self, factor: float) -> None:
        group = self.optimizer.param_groups[0]
        group["lr"] = min(max(group["lr"] * factor, LEAST_RATE), MOST_RATE)

    @torch.no_grad()
    def _kl(self) -> float:
        """Nats a turn by which the batch's decisions have moved since they were made (k3)."""
        total = 0.0
        turns = 0
        for part, encoded in self._parts:
            scored = part.score(encoded, self.policy.generation.temperature)
            total += float(deviation_k3(scored.logprobs - part.old_logprobs).sum())
            turns += len(part.turns.indices)
        return total / max(turns, 1)

    @torch.no_grad()
    def _fit_critic(self, targets: Targets) -> None:
        """Let the critic take in the batch's returns, if there is one."""
        if not self.config.has_critic:
            return
        critic = self.policy.model.v_head
        assert isinstance(critic, RidgeCritic), "made with the adapter"
        states: list[Tensor] = []
        indices: list[Tensor] = []
        for part, encoded in self._parts:
            credited = part.credited(self.config.credit)
            states.append(encoded.hidden[credited.rows, credited.columns])
            indices.append(credited.indices)
        if indices:
            every = torch.cat(indices)
            critic.fit(torch.cat(states), targets.returns[every], targets.value_weights[every])

    def _take_rows(self) -> None:
        """Take the rows that are trained out of B; there may be more of them than at the last update."""
        if self.narrow.trained != self._tokens:
            self._regroup(self.narrow.trained)
        with torch.no_grad():
            self._rows.copy_(self.narrow.up[self._tokens])
        self.narrow.rows = self._rows

    def _regroup(self, tokens: Sequence[int]) -> None:
        """Have a row for each of these tokens; Adam's moments of those that there were before go along."""
        place_before = {token: place for place, token in enumerate(self._tokens)}
        moments = self.optimizer.state.get(self._rows, {})
        shape = (len(tokens), len(self.narrow.down))
        rows = nn.Parameter(self.narrow.up.new_zeros(shape))
        optimizer = _adam(rows, self.optimizer.param_groups[0]["lr"])
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

    def _put_rows(self) -> None:
        """Put them back."""
        self.narrow.rows = None
        with torch.no_grad():
            self.narrow.up[self.narrow.trained] = self._rows


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


def _of_critic(critic: nn.Module) -> dict[str, Tensor]:
    return {CRITIC + name: value for name, value in critic.state_dict().items()}
