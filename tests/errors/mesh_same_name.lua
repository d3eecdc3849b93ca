local mesh = device_mesh{ {"tp", 2}, {"tp", 2} }
