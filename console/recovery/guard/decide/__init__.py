"""When the guard acts: pure code over what was seen, which a replay runs as well."""
