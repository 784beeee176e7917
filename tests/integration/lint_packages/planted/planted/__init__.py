"""Planted offenders: each line marked `bad` is found, and no other."""
