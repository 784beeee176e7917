"""Unit tests of the freewheel package and of its build metadata: no native library is needed."""
