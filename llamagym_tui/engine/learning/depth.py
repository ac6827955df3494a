"""How deep a run's training goes, in words: which weights of the model are trained, and how many."""

from llamagym_tui.engine.policy.policy import Policy


def what_is_trained(policy: Policy) -> str:
    """The number of the policy's trained weights and where in the model they are, in words, without the critic's."""
    if policy.narrow is not None:
        tokens = len(policy.narrow.trained)
        of_token = len(policy.narrow.down)
        if not tokens:  # turns have actions of their own, which are not known yet
            return f"{of_token:,} weights of an adapter on the LM head alone for each token at which replies part"
        return f"{tokens * of_token:,} weights of an adapter on the LM head alone, for {tokens:,} tokens"
    model = policy.model
    weights = sum(
        each.numel() for each in model.pretrained_model.parameters() if each.requires_grad
    )
    if not model.is_adapted:
        return f"all {weights:,} weights of the model"
    layers = model.causal_lm.config.get_text_config().num_hidden_layers
    return f"{weights:,} weights of an adapter in all {layers:,} layers"
