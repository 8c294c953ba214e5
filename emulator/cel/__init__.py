"""The part of the Common Expression Language that validation rules are written in."""
