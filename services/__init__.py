"""Llamatape services: each talks to the others over the log and the bus alone."""
