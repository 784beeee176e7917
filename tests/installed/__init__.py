"""Tests of an installed wheel: run them in its environment, with torch, from another folder."""
