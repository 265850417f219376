"""Open-loop load of several classes at once, and what they do to each other.

The pure part (scenario, arrivals, schedule, prompts, figures, compare, guards, report) knows no
clock and no socket. `conduct` runs a plan in generators, processes of their own that drive
`targets`.
"""
