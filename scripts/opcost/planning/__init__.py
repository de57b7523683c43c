"""What is still to be measured, in how much time, and how far it is."""
