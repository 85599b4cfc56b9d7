"""Takes the embedded tasks; gives other libraries' structured guides beside ours."""
