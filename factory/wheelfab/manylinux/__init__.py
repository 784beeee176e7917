"""Builds cells in a container, through cibuildwheel: its configuration, its hooks, the run.

``hook`` and ``finish`` run in the container, where there is no engine's SDK: nothing is imported
here.
"""
