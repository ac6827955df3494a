"""The agent of a run in the UI process: its prompting without a model, looked up when it is first needed."""

from functools import cached_property
from pathlib import Path

from llamagym_tui.errors import RAISED, AgentFileError, UsageError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.catalog import agent_name, agent_of, code_of, find_agent, made


class RunAgent:
    """An agent that is known by its spec, and made when it is first asked for."""

    def __init__(
        self,
        spec: str,
        *,
        config: RunConfig | None = None,
        may_run_code: bool = True,
        demos: Path | None = None,
    ) -> None:
        """An agent that has not been looked up yet.

        Args:
            spec: its name, ``path.py[:Class]`` or Gymnasium id.
            config: settings of its run, if it plays in one.
            may_run_code: allow a file or module that `spec` names to be executed; a recorded run executes none.
            demos: file for a person's demonstrations; by default the agent's among the user's own.
        """
        self.spec = spec
        self._config = config
        self._may_run_code = may_run_code
        self._demos = demos

    @cached_property
    def name(self) -> str:
        return agent_name(self.spec)

    @property
    def title(self) -> str:
        return type(self.agent).title or type(self.agent).__name__

    @cached_property
    def agent(self) -> AgentBase:
        """The agent, without a model.

        Raises:
            UsageError: there is no agent of that name, or its code may not run.
            AgentFileError: its file does not load, or it cannot be made.
        """
        code = code_of(self.spec)
        if code and not self._may_run_code:
            raise UsageError(
                f"A replay executes no code, and the agent of this run is {code}; resume the run."
            )
        return made(agent_of(self._config) if self._config else find_agent(self.spec))

    def own_prompt(self) -> str:
        """The agent's own system prompt."""
        agent = self.agent
        try:
            return agent.get_system_prompt()
        except RAISED as error:
            raise AgentFileError(
                f"{type(agent).__name__}.get_system_prompt failed: {described(error)}."
            ) from error

    def demos_path(self) -> Path:
        """The file for a person's demonstrations with this agent."""
        from llamagym_tui.demos.files import default_path

        return self._demos or default_path(self.name)
