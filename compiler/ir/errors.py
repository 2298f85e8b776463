"""The two families of exceptions: the user's faults (`CleaveError`) and malformed IR (`IrError`)."""


class CleaveError(Exception):
    """A fault of the input or the request, in one line that says what, where, what was expected and what to do."""


class IrError(CleaveError):
    """The IR broke one of its invariants; the message names the node, the rule and what was expected."""
