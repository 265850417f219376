"""The adapter for servers that speak the OpenAI API."""
