"""How ranks of one device share the work of a stage."""
