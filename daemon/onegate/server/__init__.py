"""The daemon: the only part of the package that listens, accepts and answers."""
