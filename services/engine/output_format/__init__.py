"""How the model of a chat template writes thoughts, content and tool calls.

`derive` finds it out by rendering sample chats and comparing; `request` adds what one request offers
and wants; `grammar` makes a grammar of it. The parsers of the streams service read by the same
description.
"""
