"""Unit tests of wheelfab, a file a module: no process, no network, no GPU."""
