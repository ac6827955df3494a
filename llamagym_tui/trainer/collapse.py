"""Notices that a policy collapses, from the figures of its updates.

Every rule compares a run with its own past:

- *Broken numbers*: a figure is not finite, or no optimizer step was. That is a collapse.
- *Parse failures* rise above the lowest rate of the run: a little is a warning, a lot a collapse.
- *A fall*: the mean return of the last updates is `FALL` standard errors below its best. Alone it is a warning; with
  parse failures it is a collapse.
"""

import math
from typing import Literal, NamedTuple

from msgspec import Struct

from llamagym_tui.settings import UpdateStats

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
"""Updates behind the recent rate of parse failures."""
PARSE_RISE = 0.05
"""Rise of the parse failure rate that is a warning."""
PARSE_FLAGRANT = 0.3
"""Rise that is a collapse."""
REMIND_AFTER = 20
"""Updates after which the same finding is reported again."""

Level = Literal["quiet", "warning", "collapsed"]


class Verdict(NamedTuple):
    level: Level = "quiet"
    reason: str = ""
    """For people, with figures; empty if quiet."""
    is_new: bool = False
    """It should be reported: it was not for `REMIND_AFTER` updates."""


class Window(NamedTuple):
    mean: float
    episodes: float
    """Independent episodes that say as much; those that share a seed say less."""


class CollapseMonitor(Struct, kw_only=True):
    """Remembers one run's figures, in its checkpoints too, and judges each update by them.

    Another prompt or another sampling distribution makes returns incomparable, and takes a new monitor.
    """

    history: list[UpdateStats] = []
    """The last `WINDOW` updates."""
    best: Window | None = None
    """The largest mean return over some updates. None: too few updates to know."""
    lowest_failures: float = math.inf
    largest_spread: float = 0.0
    is_quiet: bool = True
    """The last update was judged quiet."""
    updates: int = 0
    reported_at: dict[Level, int] = {}
    """The number of the update at which each kind of finding was reported last."""

    def rolled_back(self) -> None:
        """Forget what was seen of the later policy, but not the best mean."""
        self.history.clear()
        self.reported_at.clear()
        self.is_quiet = True

    def judge(self, stats: UpdateStats) -> Verdict:
        """Add an update's figures, and compare them with those before."""
        verdict = self._judged(stats)
        self.updates += 1
        self.is_quiet = verdict.level == "quiet"
        since = self.updates - self.reported_at.get(verdict.level, -REMIND_AFTER)
        if self.is_quiet or since < REMIND_AFTER:
            return verdict
        self.reported_at[verdict.level] = self.updates
        return verdict._replace(is_new=True)

    @property
    def is_good(self) -> bool:
        """The last update was quiet, and the mean return is about as good as it ever was."""
        return self.is_quiet and bool(self.history) and self._fall() < GOOD

    def _judged(self, stats: UpdateStats) -> Verdict:
        if broken := _broken(stats):
            return Verdict("collapsed", f"{broken} in this update.")
        self._remember(stats)
        reasons = []
        rate = self._failure_rate()
        rise = rate - self.lowest_failures
        if rise > PARSE_RISE:
            reasons.append(
                f"{rate:.0%} of replies name no action, {self.lowest_failures:.0%} before"
            )
        has_fallen = self.best is not None and self._fall() >= FALL
        if has_fallen and self.best is not None:
            reasons.append(
                f"the mean return fell from {self.best.mean:.3f} to {self._recent().mean:.3f}"
            )
        if not reasons:
            return Verdict()
        text = ", and ".join(reasons)
        is_collapse = rise > PARSE_FLAGRANT or len(reasons) == 2
        level: Level = "collapsed" if is_collapse else "warning"
        return Verdict(level, f"{text[0].upper()}{text[1:]}.")

    def _remember(self, stats: UpdateStats) -> None:
        self.history.append(stats)
        del self.history[:-WINDOW]
        self.largest_spread = max(self.largest_spread, stats.return_std)
        self.lowest_failures = min(self.lowest_failures, self._failure_rate())
        recent = self._recent()
        is_known = len(self.history) >= FEWEST and recent.episodes > 0
        if is_known and (self.best is None or recent.mean >= self.best.mean):
            self.best = recent

    def _failure_rate(self) -> float:
        rates = [past.parse_failure_rate for past in self.history[-SHORT:]]
        return sum(rates) / len(rates)

    def _recent(self) -> Window:
        known = [past for past in self.history if math.isfinite(past.mean_return)]
        episodes = sum(past.episodes for past in known)
        total = sum(past.mean_return * past.episodes for past in known)
        weight = sum(past.episodes / past.design_effect for past in known)
        return Window(total / max(episodes, 1), weight)

    def _fall(self) -> float:
        """Standard errors by which the recent mean return lies below its best.

        They are of the largest spread seen, so that one failure after many equal returns is no fall.
        """
        recent = self._recent()
        best = self.best
        if best is None or not recent.episodes or recent.mean >= best.mean:
            return 0.0
        noise = self.largest_spread * math.sqrt(1 / best.episodes + 1 / recent.episodes)
        return (best.mean - recent.mean) / noise if noise else math.inf


def _broken(stats: UpdateStats) -> str:
    """The fault in an update's numbers; empty if there is none."""
    figures = (stats.policy_loss, stats.value_loss, stats.approx_kl, stats.entropy, stats.grad_norm)
    if not all(map(math.isfinite, figures)):
        return "Losses are not finite"
    if stats.skipped_steps and not stats.grad_norm:
        return "No gradient was finite"
    return ""
