"""The texts around a person's table: choices, hint, score, and where the episodes went."""

from textual.content import Content

from llamagym_tui.demos.human_game import MATCH, HumanGame, Match
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import MeanReturn, counted, mean_return, signed
from llamagym_tui.screens.play.choosing import ASIDE, KEY, choices_row, how_to_choose
from llamagym_tui.screens.widgets.key_bar import KeyOf
from llamagym_tui.screens.widgets.numbers import number
from llamagym_tui.state.comparison import difference_text
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.run import RunState


def header_text(title: str) -> Content:
    return Content.assemble(
        (" YOU PLAY ", "bold $background on $accent"),
        (f" {one_line(title)}", "bold"),
        (" · every finished episode becomes a demonstration", ASIDE),
    )


def choices_text(game: HumanGame, key: KeyOf, *, writing: bool) -> Content:
    """The actions on their keys, and under them what a key does now."""
    how = how_to_choose(game.choices, key, "table", writing=writing)
    now = _what_then(game, key) if game.over else how
    return Content("\n").join([_actions(game, key), Content.styled(now, ASIDE)])


def _actions(game: HumanGame, key: KeyOf) -> Content:
    if game.over:
        result = f"The episode is over: return {number(game.score)}.  " if game.returns else ""
        return Content.assemble((result, "bold"), (f" {key('table.next', 'enter')} ", KEY), " next episode")
    return choices_row(game.choices, None)


def _what_then(game: HumanGame, key: KeyOf) -> str:
    if game.last is None:
        return ""
    if game.discarded:
        return f"Discarded: {key('table.keep', 'backspace')} keeps it after all."
    return f"Kept: {key('table.discard', 'backspace')} discards it."


def hint_text(game: HumanGame, policy: str) -> Content:
    """What policy and expert would do; `policy`: the policy's choice as text, or why there is none."""
    text = f"policy: {one_line(policy)}"
    if game.has_expert:
        text += f"; expert: {one_line(game.hint()) or 'no action for this state'}"
    return Content.styled(text, "$text-accent italic")


def score_text(game: HumanGame, state: RunState) -> Content:
    """This return, the mean so far, and how a match stands."""
    text = f"return now {number(game.score)}"
    if (mean := mean_return(game.returns)) is not None:
        played, total = counted(mean.episodes, "episode"), number(sum(game.returns))
        text += f" · {played}, sum {total}, mean {number(mean.mean, 3)}"
    return Content(f"{text}\n{match_text(game.match, state)}" if game.match is not None else text)


def match_text(match: Match, state: RunState) -> str:
    """How a match stands; at its end both means, and what is known of their difference."""
    if not match.is_over:
        return f"against the model: {len(match.returns)} of {MATCH} episodes played"
    model = next((found for found in state.evaluations if found.seed == match.seed), None)
    if model is None:
        return "against the model: it has not played its episodes"
    pairs = zip(match.returns, model.returns, strict=True)
    by = mean_return([mine - its for mine, its in pairs if its is not None]) or MeanReturn(0.0, 0.0, 0)
    mine, its = signed(sum(match.returns) / MATCH), signed(model.mean_return)
    scores = f"You earn {mine}, the model {its}{played_by(model, state.prompts)}"
    return f"{scores}. You against it: {difference_text(by, one_line(state.return_unit))}."


def saved_text(game: HumanGame, fault: str) -> Content:
    saved = game.writer.saved
    if fault:
        text = fault
    elif saved.fault:
        text = f"{saved.waiting} not saved, kept in memory (ctrl+s tries again): {saved.fault}"
    elif not saved.episodes:
        text = f"Finished episodes are appended to {game.writer.path}"
    else:
        text = f"{counted(saved.episodes, 'episode')} saved to {game.writer.path}"
    return Content(one_line(text))
