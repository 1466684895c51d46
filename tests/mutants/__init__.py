"""How strong the tests are: small faults put into the program, and whether a test notices them."""
