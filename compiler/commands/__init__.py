"""The commands of `cleave`, a file for each kind: build (compile), look (inspect, diff, passes, ops), work (opt, validate, run)."""
