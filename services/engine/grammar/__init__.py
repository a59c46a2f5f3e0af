"""Constrained output: grammars (GBNF), JSON schemas that become grammars, and triggers. Pure.

No text of a user's grammar reaches llama.cpp: its parser and its matcher crash or hang on hostile
ones. `gbnf` parses a grammar into a `Program`, `Automaton` follows it one byte at a time as a lazy,
deterministic automaton of bounded work, `TokenTable` says which tokens may come next, and
`Constraint` puts them together for one choice.
"""
