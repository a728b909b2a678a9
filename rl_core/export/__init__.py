"""Publishing a trained model: its verification, its model card, and the upload to the Hugging Face hub."""
