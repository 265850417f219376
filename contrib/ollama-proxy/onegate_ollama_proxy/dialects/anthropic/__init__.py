"""The Anthropic route, as far as it is this proxy's: how it says no."""
