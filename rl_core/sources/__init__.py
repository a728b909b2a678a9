"""Where rows come from: the sources that a config may name, each a file that knows all about itself."""
