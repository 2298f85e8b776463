"""What things cost: devices and links, seconds and bytes of an operator, a transfer, a collective, a whole placed module.

The cost model states, it never chooses: objectives and preferences live in `passes`.
"""
