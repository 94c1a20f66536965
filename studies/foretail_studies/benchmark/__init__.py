"""The benchmark of predictors, rules and policies: frozen conditions, one score."""
