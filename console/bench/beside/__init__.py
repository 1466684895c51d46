"""Who else uses a server that is measured, and the machine that it runs on."""
