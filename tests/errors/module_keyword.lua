local M = nn.Linear(4, 5, {biass = false})
