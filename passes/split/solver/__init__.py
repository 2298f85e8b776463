"""What `solve` is made of: shrinking (arcs, followers, eliminate, times), searching (messages, decode, multipliers), proving (exact)."""
