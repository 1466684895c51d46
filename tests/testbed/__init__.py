"""Real parts for tests: a private Docker engine, images, and a scripted NVML library."""
