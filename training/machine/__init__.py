"""Devices, precision, processes, and the utilisation of a GPU (MFU)."""
