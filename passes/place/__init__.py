"""Passes that name devices, and fix an order on them where it pays."""
