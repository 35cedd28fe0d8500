"""Devices, precision, processes, and how much of the machine's arithmetic a run uses."""
