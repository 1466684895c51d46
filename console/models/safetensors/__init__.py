"""What a safetensors checkpoint stores: headers of its shards, and bytes by tensor."""
