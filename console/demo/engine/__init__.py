"""The demo's engine under the name that site files of an earlier version start it by."""
