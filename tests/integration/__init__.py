"""Tests with real compilers, interpreters, wheels and servers."""
