"""Give GPUs a platform and rules about software a change of code; admit rules about platforms, and FPGAs."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

PLATFORM_OF = {
    "nvidia": "cuda",
    "amd": "rocm",
    "google": "xla",
    "huawei": "cann",
    "cambricon": "neuware",
    "qualcomm": "qualcomm-aic",
    "aws": "neuron",
}
"""Fills the new column of a database that holds GPUs already. A new database gets it from seed/gpus.csv."""

OLD_SCOPES = ("kind", "vendor", "architecture", "gpu", "family", "instance")
NEW_SCOPES = ("kind", "vendor", "platform", "architecture", "gpu", "family", "instance")
OLD_KINDS = ("gpu", "tpu", "npu")
NEW_KINDS = ("gpu", "tpu", "npu", "fpga")


def upgrade() -> None:
    op.execute("UPDATE catalog_version SET importing = true")  # holds the triggers back: no price changes
    op.add_column("gpu", sa.Column("platform", sa.String(), nullable=True))
    gpu = sa.table("gpu", *map(sa.column, ("vendor", "architecture", "platform")))
    for vendor, platform in PLATFORM_OF.items():
        op.execute(gpu.update().where(gpu.c.vendor == vendor, gpu.c.architecture != "rdna").values(platform=platform))
    is_gaudi = gpu.c.architecture.like("gaudi%")
    op.execute(gpu.update().where(is_gaudi).values(platform="synapse"))
    op.execute(gpu.update().where(gpu.c.vendor == "intel", sa.not_(is_gaudi)).values(platform="oneapi"))
    op.add_column("framework_support", sa.Column("code_change", sa.String(), nullable=True))
    _admit("framework_support", "scope", OLD_SCOPES, NEW_SCOPES)
    _admit("gpu", "kind", OLD_KINDS, NEW_KINDS)
    op.execute("UPDATE catalog_version SET importing = false")


def downgrade() -> None:
    op.execute("UPDATE catalog_version SET importing = true")
    op.execute("DELETE FROM framework_support WHERE scope = 'platform'")
    _admit("gpu", "kind", NEW_KINDS, OLD_KINDS)
    _admit("framework_support", "scope", NEW_SCOPES, OLD_SCOPES)
    op.drop_column("framework_support", "code_change")
    op.drop_column("gpu", "platform")
    op.execute("UPDATE catalog_version SET importing = false")


def _admit(table: str, column: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """Changes the words that a column may hold."""
    name = f"ck_{table}_{column}_known"
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f(name), table, type_="check")
        op.create_check_constraint(op.f(name), table, _one_of(column, after))
        return
    # SQLite changes no constraint. A copy of the table would lose its triggers and break the references to it, so the
    # stored text changes instead, as the documentation of ALTER TABLE describes for changes that leave the rows alone.
    schema_version = op.get_bind().exec_driver_sql("PRAGMA schema_version").scalar_one()
    op.execute("PRAGMA writable_schema = ON")
    schema = sa.table("sqlite_master", *map(sa.column, ("type", "name", "sql")))
    changed = sa.func.replace(schema.c.sql, _one_of(column, before), _one_of(column, after))
    op.execute(schema.update().where(schema.c.type == "table", schema.c.name == table).values(sql=changed))
    op.execute(f"PRAGMA schema_version = {schema_version + 1}")
    op.execute("PRAGMA writable_schema = OFF")


def _one_of(column: str, words: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{word}'" for word in words)
    return f"{column} IN ({listed})"
