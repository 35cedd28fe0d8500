"""Devices, precision, processes, downloads, and the utilisation of a GPU (MFU)."""
