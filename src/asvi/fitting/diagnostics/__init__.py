"""Takes draws and how they were made; gives a verdict, in numbers and in words."""
