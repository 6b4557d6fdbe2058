"""Beds of real SLURM: a virtual machine per SLURM version, or the host itself."""
