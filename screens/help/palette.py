"""The command palette finds by meaning: by a command's title, by other words for it, and by what its help says.

The best comes first; what only has the typed letters in their order, which is all that Textual looks for, comes last.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.screen import Screen

SYNONYMS = {
    "pause": "stop halt hold freeze wait continue",
    "mode": "learn train learning test play only frozen",
    "restart": "again start reload",
    "prompt": "instructions text wording words edit system message",
    "table": "human me game hand manual",
    "metrics": "learning chart graph plot curve figures statistics loss entropy kl",
    "policy_map": "book strategy chart states heatmap table grid best",
    "settings": "rate learning lr hyperparameters parameters options configuration temperature kl",
    "evaluate": "score test benchmark measure compare",
    "checkpoint": "save write weights keep",
    "roll_back": "undo revert restore back",
    "advance.turn": "step single next",
    "advance.update": "step learning ppo next",
    "pace.faster": "speed fast quick full",
    "pace.slower": "slow speed pace delay",
    "watch.next": "other another",
    "watch.previous": "other another",
    "view": "picture board image render state",
    "watch.failure": "parse error unread wrong",
    "inspect": "probabilities logprobs ratio debug logits",
    "watch.best": "highest win",
    "watch.worst": "lowest lose",
    "wheel": "steer drive control intervene correct human",
    "demonstrations": "data examples dataset recorded episodes games",
    "keep": "save demonstration bookmark",
    "warm_start": "sft imitation imitate supervised cloning dpo preferences finetune demonstrations",
    "lesson": "tutorial exercise learning",
    "runs": "compare history experiments older list",
    "help": "keys shortcuts manual",
    "quit": "exit leave close stop end",
    "app.quit": "exit close stop end",
    "app.screen": "screenshot export svg picture image",
    "search": "find grep",
    "turn.before": "mark select",
    "turn.after": "mark select",
    "home.quit": "exit leave close stop end",
    "home.lessons": "tutorial exercise learning course",
    "home.runs": "compare history experiments",
    "home.demonstrations": "data examples dataset sft",
    "home.filter": "find search",
    "home.play": "start begin run train",
    "home.choose": "model llm weights",
    "theme": "colours colors dark light appearance",
}
"""Other words for what a key does, by the id of its binding, the most telling first."""
FULL = 1.0
"""Score of a word of the title; that of its beginning is a tenth less, as in the two below."""
SYNONYM = 0.7
"""Score of another word for it; later ones in the list count less."""
HELP = 0.4
"""Score of a word of its help."""
FUZZY = 0.1
"""Score of letters in their order."""


class Command(NamedTuple):
    """What the palette lists."""

    title: str
    help: str
    run: Callable[[], Any]
    id: str = ""
    """Of its binding."""


def score(command: Command, query: str) -> float:
    """How well a command fits all words of a query; 0: some word is nowhere in it."""
    words = query.lower().split()
    scores = [_score(command, word) for word in words]
    return sum(scores) / len(scores) if scores and all(scores) else 0.0


def _score(command: Command, word: str) -> float:
    synonyms = SYNONYMS.get(command.id, "").split()
    places = (
        (FULL, _words(command.title)),
        (SYNONYM, synonyms),
        (HELP, _words(command.help)),
    )
    best = 0.0
    for full, known in places:
        for at, each in enumerate(known):
            later = 0.01 * at if known is synonyms else 0.0
            if each == word:
                best = max(best, full - later)
            elif each.startswith(word):
                best = max(best, full - 0.1 - later)
    return best


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Lists(Protocol):
    """An app that knows what can be done on a screen."""

    def commands(self, screen: Screen[Any]) -> Iterable[Command]: ...


class Commands(Provider):
    """Finds what can be done now."""

    @property
    def _known(self) -> Iterable[Command]:
        return cast(Lists, self.app).commands(self.screen)

    async def discover(self) -> Hits:
        for command in sorted(self._known, key=lambda known: known.title):
            yield DiscoveryHit(Content(command.title), command.run, command.title, command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._known:
            found = score(command, query)
            if not found:
                found = FUZZY * min(1.0, matcher.match(command.title))
            if found:
                shown = matcher.highlight(command.title)
                yield Hit(found, shown, command.run, command.title, command.help)
