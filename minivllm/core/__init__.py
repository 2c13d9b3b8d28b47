"""Paging, prefix cache and scheduling in pure Python: no torch, no numpy, tested in milliseconds."""
