"""The sources of builds' downloads, and the logins for them."""
