"""The commands of `cleave`, a file for each kind.

build (compile, plan), look (inspect, diff, passes, ops), work (opt, validate, run), hunt (bisect, reduce)
"""
