"""What clients say, translated into llama-server's native names: pure functions, no I/O.

Each dialect checks the types and the shape of its own fields; values (ranges, token ids, grammars)
are the engine's to judge, since only it knows the model. A field that is null counts as absent.
"""
