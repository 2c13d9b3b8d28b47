"""What `python -m minivllm` offers, one command a file."""
