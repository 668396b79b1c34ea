"""Training runs on this machine: models, data, batch phases, page cache, and a journal that runs each cell once."""
