"""Where training goes on, and how a run's files are brought into this state."""
