"""Tests of what a safetensors checkpoint stores."""
