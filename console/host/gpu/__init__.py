"""GPUs as NVML reports them, each query from a process of its own, which may hang."""
