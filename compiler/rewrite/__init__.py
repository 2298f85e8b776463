"""Rewriting by rules: what a rule is (`rule`), where it fits (`matcher`), and running many to a fixpoint (`engine`)."""
