"""Devices, precision, processes, and what the machine's arithmetic is used for."""
