"""Configuration: TOML in, settings out."""
