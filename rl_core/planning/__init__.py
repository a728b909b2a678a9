"""What a run needs and whether it can work, from its configuration alone. Imports no torch."""
