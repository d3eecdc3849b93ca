model = nn.Linear(10, 5)
return train{
  model = modul,
}
