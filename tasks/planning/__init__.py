"""What can be known before a run starts: its problems, and which stages stand."""
