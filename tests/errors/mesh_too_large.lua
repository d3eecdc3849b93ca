local mesh = device_mesh{ {"dp", 1024}, {"tp", 1024} }
