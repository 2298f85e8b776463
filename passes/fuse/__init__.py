"""Fusing operators: what can be one kernel, or can be folded into a weight, becomes one node."""
