"""The tests of wheelfab and of freewheel."""
