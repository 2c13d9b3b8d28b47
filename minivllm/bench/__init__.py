"""Benchmarks: how fast, and how fast it could be."""
