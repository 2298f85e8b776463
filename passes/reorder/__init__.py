"""Passes that choose in which order nodes stand: by rank, so that the longest chain starts first, or by memory."""
