"""Infrastructure without a subject: registries, files, canonical JSON, compiled loops, child processes."""
