"""Takes a program; gives its log density as a function of its noise: values, slopes, curvature."""
