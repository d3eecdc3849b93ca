read_json("/etc/hostname")
