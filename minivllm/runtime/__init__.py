"""What carries plans out: runners (simulated, CPU, GPU), the KV store, per-request device state, CUDA graphs."""
