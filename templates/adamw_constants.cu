  const float c1 = (float)(1 / (1 - pow($beta1$, t))), c2 = (float)(1 / (1 - pow($beta2$, t)));
