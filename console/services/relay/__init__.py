"""The relay under the name by which it is started and found; see `console.runtime.proxy`."""
