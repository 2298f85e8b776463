"""Splitting operators over a mesh: choose annotates each value with a sharding, partition materialises one node for each device."""
