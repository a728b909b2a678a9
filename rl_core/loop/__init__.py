"""The training loop: a step from prompts to new weights, validation, records and checkpoints."""
