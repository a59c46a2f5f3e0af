"""From the text that a model wrote to thoughts, content and tool calls, by the output format in the log.

Pure and incremental: the deltas, joined, do not depend on how the text was cut.
"""

from services.streams.parsers.answer import AnswerParser

__all__ = ["AnswerParser"]
