"""Bringing a module into the form other passes expect: typed, inlined, frozen, folded, without repeats or dead code."""
