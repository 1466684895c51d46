"""The console and a status page in a browser on this machine: `omni-console web`."""
