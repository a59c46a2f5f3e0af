"""Errors of the parsers. None of them leaves the package.

Mismatch    the text is not what the pattern says; whoever tried takes it for something else
"""


class Mismatch(Exception):
    """The text is not what was tried."""
