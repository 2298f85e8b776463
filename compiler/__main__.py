"""`python -m compiler` is the command `cleave`."""

from compiler.cli import main

main()
