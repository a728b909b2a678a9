"""What a finished run came to: its facts, summary.json and the report."""
