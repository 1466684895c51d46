"""GPUs, as NVML knows them: each answer is from a process of its own, which may hang."""
