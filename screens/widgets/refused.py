"""Actions that `llamagym-tui serve` refuses.

`REFUSED_IN_BROWSER` of a class has the names of its refused actions for each kind of session, ``play``, ``seat`` or
``watch``. A bare name refuses the action with any parameters, ``ask('load')`` only with these.
"""

from textual.dom import DOMNode

from llamagym_tui.user_files import browser_session


def is_refused(owner: DOMNode, action: str, parameters: tuple[object, ...]) -> bool:
    """True if this session may not do an action."""
    session = browser_session()
    with_parameters = f"{action}({', '.join(map(repr, parameters))})"
    for kind in type(owner).__mro__:
        refused = vars(kind).get("REFUSED_IN_BROWSER", {}).get(session, ())
        if action in refused or with_parameters in refused:
            return True
    return False
