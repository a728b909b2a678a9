"""The data of a run: preparation, the prepared data and its loader, a look at a user's files."""
