"""What keys of `llamagym-tui serve` may not do: each screen names those of its actions itself.

`REFUSED_IN_BROWSER` of a class has the names of actions by the kind of session, ``play``, ``seat`` or ``watch``. A name
alone is the action with any parameters; with parameters, as in ``ask('load')``, it is the action with these.
"""

from textual.dom import DOMNode

from llamagym_tui.user_files import browser_session


def is_refused(owner: DOMNode, action: str, parameters: tuple[object, ...]) -> bool:
    """Whether this session may not do an action of a screen, of a widget or of the app."""
    session = browser_session()
    with_parameters = f"{action}({', '.join(map(repr, parameters))})"
    for kind in type(owner).__mro__:
        refused = vars(kind).get("REFUSED_IN_BROWSER", {}).get(session, ())
        if action in refused or with_parameters in refused:
            return True
    return False
