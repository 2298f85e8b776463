"""Driving a compilation from a model to a checked artefact, and what comes of it: `Compiled`, `Plan`, `Report`."""
