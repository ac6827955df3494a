"""Items that a model reads and a person judges: the states grow in one thread while another one asks and judges.

Each action's name counts as an item that has been judged, so that a model that knows the words begins above chance.
Items are read in the order in which they are given, and shown in the same order, so an order by chance makes the share
of right choices an honest measure of the items to come.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.judgements import (
    Belief,
    Judgement,
    Lens,
    certainty,
    choose,
    fit,
    lens_of,
    ruled_out,
    sort,
)
from llamagym_tui.engine.learning.read_depth import is_deep
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.loading import LoadedModel
from llamagym_tui.engine.model.shape import context_of
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer, Opening

DEPTH = 0.4
"""Share of a deep model's layers that is read: what a text is about is clearest in the middle."""
BATCH = 32
"""Items that are read at a time."""
LOOKED_THROUGH = 1024
"""Items that show the directions in which items differ, at most."""
LONGEST = 4000
"""Characters of an item that are read, at most."""


class Shown(NamedTuple):
    """An item with the action that the model chooses."""

    item: int
    action: int
    certainties: list[float]
    """Of each action: the probability that it is the best one, as the model sees it."""


class Sorted(NamedTuple):
    """The action of an item, and its probability of being the best one."""

    action: int
    certainty: float


class Score(NamedTuple):
    """Items whose action was right when it was shown."""

    right: int
    judged: int


class Reader:
    """A model that gives a state for each text, from a middle layer if it is deep."""

    def __init__(self, loaded: LoadedModel, prompt: str) -> None:
        """A reader under a system prompt; the model keeps only the layers that are read."""
        model = loaded.model
        if is_deep(model):
            model.keep_layers(round(DEPTH * len(model.causal_lm.get_decoder().layers)))
        self._backbone: Backbone = model.backbone
        self._context = context_of(model.causal_lm.config)
        self._prompt = prompt
        self._chat = ChatTokenizer(loaded.tokenizer, model.causal_lm.generation_config)

    def states(self, texts: Sequence[str]) -> Tensor:
        """(N, D) the state of each text, where a reply would begin."""
        return self._backbone.last_states([self._opening(text[:LONGEST]) for text in texts])[0]

    def _opening(self, text: str) -> Opening:
        """The ids of a text's prompt; a text that the model cannot read whole loses its end."""
        opening = self._chat.opening(self._prompt, text)
        while self._context and text and sum(map(len, opening)) > self._context:
            text = text[: len(text) // 2]
            opening = self._chat.opening(self._prompt, text)
        return opening


class Sorter:
    """Items with their states, judgements and actions."""

    def __init__(self, items: Sequence[str], actions: Sequence[str]) -> None:
        """No item has been read or judged.

        Args:
            items: distinct texts, in the order in which they are read and shown.
            actions: the names of two or more.
        """
        self.items = list(items)
        self.actions = list(actions)
        self.judgements: list[Judgement] = []
        self.moved = Counter[int]()
        """The number of items that the last judgement moved to each action."""
        self.chosen = torch.zeros(0, dtype=torch.long)
        """(N,) the action of each item that has been read."""
        self.shown: Shown | None = None
        """The item to be judged. None: all that have been read are judged."""
        self._features = torch.zeros(0, 1)
        self._of_names = torch.zeros(0, 1)
        self._belief = Belief(torch.zeros(len(actions), 1), torch.zeros(len(actions), 1, 1))
        self._lock = Lock()
        self._stopped = Event()

    @property
    def read(self) -> int:
        """Items that have been read."""
        return len(self.chosen)

    def stop(self) -> None:
        """End the reading after the batch under way."""
        self._stopped.set()

    def read_all(self, states_of: Callable[[Sequence[str]], Tensor]) -> None:
        """Read all items, in a thread of the caller's; `states_of` gives a state for each text."""
        of_names = states_of(self.actions)
        states = of_names.new_zeros(len(self.items), of_names.shape[1])
        lens: Lens | None = None
        looked_through = 0
        for start in range(0, len(self.items), BATCH):
            if self._stopped.is_set():
                return
            found = states_of(self.items[start : start + BATCH])
            read = start + len(found)
            states[start:read] = found
            if lens is None or (2 * looked_through <= read and looked_through < LOOKED_THROUGH):
                looked_through = read
                lens = lens_of(torch.cat([of_names, states[:read]]))
                features = lens.features(states[:read])
            else:
                features = torch.cat([self._features, lens.features(found)])
            with self._lock:
                self._features = features
                self._of_names = lens.features(of_names)
                self._refit()

    def judge(self, label: int | None) -> Judgement:
        """Judge the shown item: its right action, or None if the shown one is wrong and no more is said."""
        with self._lock:
            assert self.shown is not None
            judgement = Judgement(self.shown.item, self.shown.action, label)
            before = self.chosen
            self.judgements.append(judgement)
            self.shown = None
            self._refit()
            self.moved = self._moved_from(before)
        return judgement

    def take_back(self) -> Judgement | None:
        """Take back the last judgement; its item is shown again. None: there is none."""
        with self._lock:
            if not self.judgements:
                return None
            judgement = self.judgements.pop()
            self.shown = None
            self._refit()
            self.moved = Counter()
        return judgement

    def score(self, last: int | None = None) -> Score:
        """The share of right choices among all judgements, or the last ones."""
        counted = self.judgements[-last:] if last else self.judgements
        return Score(sum(judgement.is_right for judgement in counted), len(counted))

    @property
    def judged(self) -> set[int]:
        """Items that have been judged."""
        return {judgement.item for judgement in self.judgements}

    def unjudged_by_action(self) -> list[int]:
        """The number of unjudged items that each action has."""
        judged = self.judged
        chosen = self.chosen.tolist()
        counts = Counter(action for item, action in enumerate(chosen) if item not in judged)
        return [counts[index] for index in range(len(self.actions))]

    def sorted_items(self) -> list[Sorted]:
        """All items that have been read; certainty about all takes as long as many judgements."""
        with self._lock:
            shares = certainty(self._belief, self._features, self._ruled_out(), self._generator())
            of_chosen = shares.gather(1, self.chosen[:, None]).flatten()
            return list(map(Sorted, self.chosen.tolist(), of_chosen.tolist()))

    def _refit(self) -> None:
        """Sort all items that have been read by all judgements on them, and choose what is shown."""
        known = self._known()
        count = len(self._features)
        # An action's own name is as good as an item that belongs there.
        named = [Judgement(count + at, shown=at, label=at) for at in range(len(self._of_names))]
        features = torch.cat([self._features, self._of_names])
        belief = fit(features, [*known, *named], len(self.actions))
        self._belief = belief
        self.chosen = sort(belief, self._features, self._ruled_out())
        generator = self._generator()
        item = self._next() if self.shown is None else self.shown.item
        if item is None:
            return
        of_item = self._features[item]
        if self.shown is None:
            action = choose(belief, of_item, generator)
        else:
            action = self.shown.action
        nothing = torch.zeros(1, len(self.actions), dtype=torch.bool)
        (certainties,) = certainty(belief, of_item[None], nothing, generator).tolist()
        # At once: the other thread looks at it without the lock.
        self.shown = Shown(item, action, certainties)

    def _known(self) -> list[Judgement]:
        """The judgements on items that have been read."""
        return [each for each in self.judgements if each.item < len(self._features)]

    def _ruled_out(self) -> Tensor:
        return ruled_out(self._known(), len(self._features), len(self.actions))

    def _generator(self) -> torch.Generator:
        """The same numbers again as long as nothing is judged."""
        return torch.Generator().manual_seed(len(self.judgements))

    def _next(self) -> int | None:
        judged = self.judged
        return next((item for item in range(len(self._features)) if item not in judged), None)

    def _moved_from(self, before: Tensor) -> Counter[int]:
        after = self.chosen
        judged = self.judged
        moved = (after != before).nonzero().flatten().tolist()
        return Counter(int(after[item]) for item in moved if item not in judged)
