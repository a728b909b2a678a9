"""The parts of versus_trl.py: each side runs in a process of its own and leaves one JSON file."""
