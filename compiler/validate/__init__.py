"""Is it still the same function?  `Validator.check(original, candidate)` runs both on the same inputs and gives a `Verdict`."""

from compiler.validate.run import Subject, Validator, subject
from compiler.validate.verdict import Verdict

__all__ = ["Subject", "Validator", "Verdict", "subject"]
