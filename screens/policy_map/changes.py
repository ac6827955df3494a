"""What the last update did (key `U`): in which states of the policy map another action has
become the most probable, by the two newest maps, and which episode of its batch it moved most.
"""

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.protocol.commands import Step, WatchPolicyMap
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import DIFFERS, MappedPolicy
from llamagym_tui.screens.policy_map.screen import why_no_map
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import share
from llamagym_tui.state.run import RunState


class ChangesScreen(ModalScreen[None]):
    CSS_PATH = "../widgets/dialogs.tcss"
    BINDING_GROUP_TITLE = "What changed"
    BINDINGS = [
        Binding(
            "u",
            "update",
            "One update",
            tooltip="Go on until the next update, then pause.",
            id="changes.update",
        ),
        Binding(
            "escape,U,q", "dismiss", "Back", tooltip="Back to the conversation.", id="changes.back"
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "what the last update did"
            yield Static(changes_text(self._state), markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.post_message(CommandAsked(WatchPolicyMap(on=True)))

    def on_unmount(self) -> None:
        self.app.post_message(CommandAsked(WatchPolicyMap(on=False)))

    def show(self, state: RunState) -> None:
        self._state = state
        for text in self.query(Static):  # none yet where it has just been opened
            text.update(changes_text(state))

    def action_update(self) -> None:
        self.post_message(CommandAsked(Step(unit="update")))


def changes_text(state: RunState) -> Content:
    return Content("\n").join(_of_map(state))


def _of_map(state: RunState) -> Iterator[Content]:
    layout = state.map_layout
    if layout is None or not layout.panels or len(state.film) < 2:
        waits = "Which states changed is seen once there is another map of the policy."
        yield Content.styled(waits if layout and layout.panels else why_no_map(state), ASIDE)
        return
    before, after = state.film[-2:]
    was, now = (MappedPolicy(layout, mapped).cells for mapped in (before, after))
    found = [(spot, now[spot].choice) for spot in was if was[spot].shares]
    shifts = [
        (was[spot].shares[at], now[spot].shares[at], spot) for spot, at in found if at is not None
    ]
    shifts.sort(key=lambda shift: shift[0] - shift[1])
    others = [shift for shift in shifts if was[shift[2]].choice != now[shift[2]].choice]
    verdicts = [(was[spot].agrees, now[spot].agrees) for *_, spot in others]
    shown = others or [shift for shift in shifts[:5] if shift[1] - shift[0] >= 0.005]
    better, worse = verdicts.count((False, True)), verdicts.count((True, False))
    best = f"{better:,} changed to the best move, {worse:,} away from it." if better + worse else ""
    first = f"s {before.update + 1:,} to" if after.update > before.update + 1 else ""
    other = "" if before.prompt_version == after.prompt_version else " and another prompt"
    head = f"Update{first} {after.update:,}{other}: the preferred move changed in {len(others):,} of {len(shifts):,} "
    yield Content.styled(
        f"{head}{one_line(layout.noun) or 'states'}{'; moved most:' if shown and not others else '.'}",
        "bold",
    )
    if best:
        yield Content(best)
    for before_it, after_it, spot in shown:
        names = dict.fromkeys(
            one_line(layout.action_names[cell.choice or 0]) for cell in (was[spot], now[spot])
        )
        lead = f"{DIFFERS if now[spot].agrees is False else ' '} {' → '.join(names):<13}"
        shares = f" p({[*names][-1]}) {share(before_it, 0):>4} → {share(after_it, 0):>4}  "
        panel = layout.panels[spot.panel]
        place = one_line(
            f"{panel.title} {panel.rows[spot.row]}, {panel.columns[spot.column]}"
        ).strip()
        yield Content.assemble(
            (lead, "bold"), f"{shares}{place:<14}", (one_line(now[spot].cell.words), ASIDE)
        )
