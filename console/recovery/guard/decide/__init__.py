"""When the guard acts: pure code over snapshots, which a replay runs as well."""
