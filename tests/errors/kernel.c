// No plan here comes so far that a kernel is looked at.
