"""The configuration of the project: its schema, its YAML files and the command lines that fill it.

One key is declared once, as a field of a section's dataclass (`model.ModelConfig`,
`configs.data.DataConfig`, `configs.training`): the schema, the checks and --help all read it there.
"""
