"""Notices that a policy collapses, from the figures of its updates and the texts of its replies.

Every rule compares a run with its own past, so that what is healthy late in a run (little entropy, no spread of
returns once a lake is crossed every time) is no sign. Four things are looked for:

- *Broken numbers*: a figure is not finite, or no optimizer step was. Once is a warning, twice in a row a collapse:
  the steps were left out, so the weights may be sound.
- *A format that dissolves*: parse failures rise above their lowest, entropy above its start by more than the action
  entropy explains, or replies repeat themselves (`!!!!!`). One is a warning; two, or a flagrant one, a collapse.
- *Sameness*: what is done no longer depends on the state, and returns are not better for it. That comes before they
  fall; alone it is a warning.
- *A fall*: the mean return of the last updates is `FALL` standard errors below its best. Alone it is a warning;
  together with any sign (one of the above, no exploration left, no spread left, a gradient peak, steps left out) it
  is a collapse.

Pure: figures and texts in, verdict out. What to do about it is up to `llamagym_tui.trainer.run`.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from llamagym_tui.config import UpdateStats

WINDOW = 10
"""Updates behind the recent mean return, and behind its best."""
FEWEST = 5
"""Updates that make a mean return to fall from."""
FALL = 6.0
"""Standard errors. Of 1,000 updates of an unchanging policy, the luckiest window and a later unlucky one lie 5.5 apart
in one run of a thousand."""
GOOD = 2.0
"""Standard errors below the best within which a policy still counts as good."""
SHORT = 3
"""Updates behind a recent share or entropy, and behind its start."""
PARSE_RISE = 0.05
"""Parse failure rate above the run's lowest that is a sign."""
PARSE_FLAGRANT = 0.3
"""The same that is a collapse by itself."""
ENTROPY_RISE = 0.5
"""Nats per token above the start, and at least as much as the start itself."""
REPEAT_RISE = 0.2
"""Share of a reply's trigrams that repeat, above its start, that is a sign."""
REPEAT_FLAGRANT = 0.5
"""The same that is a collapse by itself."""
FADED = 0.1
"""Share of its start below which the action entropy, or of its largest the spread of returns or the information of the
state about the action, counts as gone."""
PEAK = 10.0
"""Times the largest gradient norm before."""
LEAST_INFORMATION = 0.05
"""Nats that the state must have said about the action before it counts that it says no more."""
FEWEST_REPLIES = 3
"""Replies of an update from which repetition can be judged."""
MOST_REPLIES = 1_000
"""Replies that are remembered until the next update, the latest ones."""
LONGEST_REPLY = 2_000
"""Characters of a reply that are looked at."""

Level = Literal["quiet", "warning", "collapsed"]
Finding = tuple[Level, tuple[str, ...]]
"""A level and the names of what was noticed."""
_WORDS = re.compile(r"\w+|[^\w\s]")


class Verdict(NamedTuple):
    level: Level = "quiet"
    signs: tuple[str, ...] = ()
    """What was noticed, each by its name: the same names mean the same finding."""
    reason: str = ""
    """The same for people, with figures; empty if quiet."""


class Sign(NamedTuple):
    name: str
    words: str
    flagrant: bool = False
    """Whether it is a collapse by itself."""


class Window(NamedTuple):
    mean: float
    episodes: float
    """As many with a seed each as say as much."""


def repeated_share(reply: str) -> float:
    """Share of a reply's trigrams (of words and signs) that stood in it before; 0 for a very short one."""
    words = _WORDS.findall(reply[:LONGEST_REPLY])
    trigrams = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(trigrams)) / len(trigrams) if trigrams else 0.0


class CollapseMonitor(Struct, kw_only=True):
    """Remembers one run's figures, in its checkpoints too, and judges each update by them.

    Another prompt or another sampling distribution makes returns incomparable, and takes a new one.
    """

    history: list[UpdateStats] = []
    """The last `WINDOW` updates."""
    first: list[UpdateStats] = []
    best: Window | None = None
    """The largest mean return over some updates. None: too few updates to know."""
    lowest_failures: float = math.inf
    largest_spread: float = 0.0
    largest_information: float = 0.0
    """Of state and action, the mean over some updates."""
    when_it_was_largest: Window | None = None
    """The mean return then. None: it was never large enough."""
    largest_gradient: float = 0.0
    gradients: int = 0
    """Updates that changed the policy."""
    repeats: list[float] = []
    first_repeats: list[float] = []
    repeat_shares: list[float] = []
    """How much each reply since the last update repeats itself."""
    broken_in_a_row: int = 0
    is_quiet: bool = True
    """Whether nothing was noticed at the last update."""

    def rolled_back(self) -> None:
        """The policy is an earlier one again: what was seen of the later one is forgotten, the best is not."""
        self.history.clear()
        self.repeats.clear()
        self.repeat_shares.clear()
        self.broken_in_a_row = 0
        self.is_quiet = True

    def add_reply(self, reply: str) -> None:
        self.repeat_shares.append(repeated_share(reply))
        del self.repeat_shares[:-MOST_REPLIES]

    def judge(self, stats: UpdateStats) -> Verdict:
        """Add an update's figures, and compare them with those before."""
        verdict = self._judged(stats)
        self.is_quiet = verdict.level == "quiet"
        return verdict

    @property
    def is_good(self) -> bool:
        """Whether nothing was noticed at the last update, and the mean return is about as good as it ever was."""
        return self.is_quiet and bool(self.history) and self._fall() < GOOD

    def _judged(self, stats: UpdateStats) -> Verdict:
        if broken := _broken(stats):
            self.broken_in_a_row += 1
            again = self.broken_in_a_row > 1
            words = f"{broken} in this update"
            if again:
                words = f"{broken} in {self.broken_in_a_row} updates in a row"
            return _verdict([Sign("broken", words)], is_collapse=again)
        self.broken_in_a_row = 0
        of_steps = list(self._signs_of_steps(stats))  # compared with the updates before
        self._remember(stats)
        of_format = list(self._format_signs())
        signs = [*of_format, *of_steps, *self._signs_of_blindness()]
        if self._fall() >= FALL and self.best is not None:
            fell = f"the mean return fell from {self.best.mean:.3f} to {self._recent().mean:.3f}"
            company = [*signs, *self._signs_of_sameness()]
            return _verdict([Sign("fall", fell), *company], is_collapse=bool(company))
        is_dissolving = len(of_format) > 1 or any(sign.flagrant for sign in of_format)
        return _verdict(signs, is_collapse=is_dissolving)

    def _remember(self, stats: UpdateStats) -> None:
        self.history.append(stats)
        del self.history[:-WINDOW]
        if len(self.first) < SHORT:
            self.first.append(stats)
        if stats.grad_norm:  # there is none while the critic warms up
            self.gradients += 1
            self.largest_gradient = max(self.largest_gradient, stats.grad_norm)
        self.largest_spread = max(self.largest_spread, stats.return_std)
        self.lowest_failures = min(self.lowest_failures, self._now("parse_failure_rate"))
        if len(self.repeat_shares) >= FEWEST_REPLIES:
            self.repeats.append(_mean(self.repeat_shares))
            del self.repeats[:-SHORT]
            if len(self.first_repeats) < SHORT:
                self.first_repeats.append(self.repeats[-1])
        self.repeat_shares.clear()
        recent = self._recent()
        information = self._now("action_information")
        if information >= max(self.largest_information, LEAST_INFORMATION) and recent.episodes:
            self.largest_information = information
            self.when_it_was_largest = recent
        is_known = len(self.history) >= FEWEST and recent.episodes > 0
        if is_known and (self.best is None or recent.mean >= self.best.mean):
            self.best = recent

    def _recent(self) -> Window:
        known = [past for past in self.history if math.isfinite(past.mean_return)]
        episodes = sum(past.episodes for past in known)
        total = sum(past.mean_return * past.episodes for past in known)
        # Episodes that share a seed say less than as many others.
        weight = sum(past.episodes / past.design_effect for past in known)
        return Window(total / max(episodes, 1), weight)

    def _now(self, figure: str) -> float:
        return _mean([getattr(past, figure) for past in self.history[-SHORT:]])

    def _at_start(self, figure: str) -> float:
        return _mean([getattr(past, figure) for past in self.first])

    def _fall(self) -> float:
        """Standard errors by which the recent mean return lies below its best; by the largest spread seen, so that
        one failure after many equal returns is no fall."""
        recent = self._recent()
        best = self.best
        if best is None or not recent.episodes or recent.mean >= best.mean:
            return 0.0
        return self._apart(best, recent)

    def _apart(self, higher: Window, lower: Window) -> float:
        """Standard errors between two means."""
        noise = self.largest_spread * math.sqrt(1 / higher.episodes + 1 / lower.episodes)
        return (higher.mean - lower.mean) / noise if noise else math.inf

    def _format_signs(self) -> Iterator[Sign]:
        rate = self._now("parse_failure_rate")
        if (rise := rate - self.lowest_failures) > PARSE_RISE:
            words = f"{rate:.0%} of replies name no action, {self.lowest_failures:.0%} before"
            yield Sign("parse failures", words, rise > PARSE_FLAGRANT)
        start = self._at_start("entropy")
        now = self._now("entropy")
        explored = self._now("action_entropy") - self._at_start("action_entropy")
        if now - start - max(0.0, explored) > max(ENTROPY_RISE, start):
            words = f"the entropy of replies rose from {start:.2f} to {now:.2f} nats a token"
            yield Sign("entropy", words)
        start = _mean(self.first_repeats)
        now = _mean(self.repeats)
        if self.repeats and now - start > REPEAT_RISE:
            words = (
                f"replies repeat themselves ({now:.0%} of their trigrams, {start:.0%} at the start)"
            )
            yield Sign("repetition", words, now - start > REPEAT_FLAGRANT)

    def _signs_of_steps(self, stats: UpdateStats) -> Iterator[Sign]:
        largest = self.largest_gradient
        if self.gradients >= FEWEST and stats.grad_norm > PEAK * largest:
            words = f"the gradient's norm is {stats.grad_norm:.3g}, at most {largest:.3g} before"
            yield Sign("gradient", words)
        if stats.skipped_steps:
            words = f"{stats.skipped_steps} optimizer steps were not finite and were left out"
            yield Sign("skipped steps", words)

    def _signs_of_blindness(self) -> Iterator[Sign]:
        before = self.when_it_was_largest
        now = self._now("action_information")
        if before is None or now >= FADED * self.largest_information:
            return
        recent = self._recent()
        # Where one action is right in all states, returns are better for it.
        is_better = recent.mean > before.mean and self._apart(recent, before) > GOOD
        if recent.episodes and not is_better:
            known = f"{now:.3f} nats of information, {self.largest_information:.2f} before"
            words = f"the same is done whatever the state is ({known}), and returns are not better for it"
            yield Sign("sameness", words)

    def _signs_of_sameness(self) -> Iterator[Sign]:
        start = self._at_start("action_entropy")
        now = self.history[-1].action_entropy
        if now < FADED * start:
            words = f"actions are no longer explored ({now:.3f} nats, {start:.2f} at the start)"
            yield Sign("exploration", words)
        largest = self.largest_spread
        now = self.history[-1].return_std
        if now < FADED * largest:
            words = f"all episodes end alike (returns spread {now:.3f}, {largest:.2f} before)"
            yield Sign("spread", words)


def _broken(stats: UpdateStats) -> str:
    """What is wrong with an update's numbers; empty if nothing is."""
    figures = (stats.policy_loss, stats.value_loss, stats.approx_kl, stats.entropy, stats.grad_norm)
    if not all(map(math.isfinite, figures)):
        return "losses are not finite"
    if stats.skipped_steps and not stats.grad_norm:
        return "no gradient was finite"
    return ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _verdict(signs: list[Sign], *, is_collapse: bool) -> Verdict:
    if not signs:
        return Verdict()
    text = ", and ".join(sign.words for sign in signs)
    level: Level = "collapsed" if is_collapse else "warning"
    return Verdict(level, tuple(sign.name for sign in signs), f"{text[0].upper()}{text[1:]}.")
