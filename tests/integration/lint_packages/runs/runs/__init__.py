"""Modules that misbehave when they are imported, each in one way."""
