"""The room that reads models: every door meets in one importer."""
