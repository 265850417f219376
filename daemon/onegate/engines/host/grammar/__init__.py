"""Answers inside a grammar: what a JSON schema asks for, in words that the library can follow.

The library reads JSON schemas itself, but ignores the keywords that it does not know, begins at
the root again when an answer is resumed, and nobody can say beforehand how long it takes over a
schema. Here every keyword is honoured or refused, a grammar has bounds, and what is left of it
behind a piece of text is a grammar again.
"""
