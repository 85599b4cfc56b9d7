"""Models, exact answers and cases that several test files share."""
