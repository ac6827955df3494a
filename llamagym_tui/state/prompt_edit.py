"""The last edit of the system prompt, with the policy maps before and after it, which show what it did."""

from dataclasses import dataclass

from llamagym_tui.protocol.events import PolicyMapped


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptEdit:
    version: int
    """Version of the prompt that came with it."""
    version_before: int
    episode: int
    """Episodes that had been played by then."""
    before: PolicyMapped | None
    """The last map before it. None: there was none."""
    after: PolicyMapped | None = None
    """The first map under its prompt. None: not computed yet."""

    def mapped(self, event: PolicyMapped) -> "PromptEdit":
        """The edit after another map was computed."""
        if self.after is not None or event.prompt_version != self.version:
            return self
        return PromptEdit(
            version=self.version,
            version_before=self.version_before,
            episode=self.episode,
            before=self.before,
            after=event,
        )
