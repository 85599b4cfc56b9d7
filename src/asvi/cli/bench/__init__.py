"""Takes tasks, families and a protocol; gives the paper's tables, cell by cell."""
