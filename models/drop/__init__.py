"""Drop predictors: the interface, those that there are, and how they are trained."""
