"""Configuration: TOML in, settings out, and back.

    CONFIG.toml, --set --overrides--> tables --load--> Settings --save--> config.toml

`sections` and `settings` are pydantic models: types, ranges and meanings of all keys. What a wrong
value is told (`errors`), the schema for editors and the reference page are read off them.
"""
