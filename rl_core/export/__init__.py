"""A trained model for others: a Hugging Face folder, its proof, its card, the hub."""
