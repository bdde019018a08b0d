"""Create the table of published runs: figures of training and inference from others, each with its source."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

CHANGES = ("INSERT", "UPDATE", "DELETE")
RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"
KINDS = (
    "train_throughput", "train_mfu", "train_time", "train_gpu_hours", "train_memory_fit", "infer_throughput",
    "infer_memory_fit", "oom",
)  # fmt: skip
UNITS = (
    "tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "output_tokens_per_second",
    "decode_tokens_per_second", "prefill_tokens_per_second", "milliseconds_per_output_token",
    "milliseconds_to_first_token", "minutes", "hours", "days", "gpu_hours", "mfu_percent", "tflops_per_gpu",
    "model_tflops_per_gpu", "hardware_tflops_per_gpu", "scaling_efficiency_percent", "gb_per_gpu", "gib_per_gpu",
    "max_context_tokens", "fits",
)  # fmt: skip


def one_of(column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(f"ck_published_run_{column}_known"))


def upgrade() -> None:
    op.create_table(
        "published_run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=True),
        sa.Column("nodes", sa.Integer(), nullable=True),
        sa.Column("machine", sa.String(), nullable=True),
        sa.Column("precision", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("weight_bits", sa.Double(), nullable=True),
        sa.Column("framework", sa.String(), nullable=True),
        sa.Column("software", sa.String(), nullable=True),
        sa.Column("sequence_length", sa.Integer(), nullable=True),
        sa.Column("input_length", sa.Integer(), nullable=True),
        sa.Column("output_length", sa.Integer(), nullable=True),
        sa.Column("micro_batch", sa.Integer(), nullable=True),
        sa.Column("global_batch", sa.Integer(), nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=True),
        sa.Column("tokens", sa.Double(), nullable=True),
        sa.Column("samples", sa.Double(), nullable=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("unit", sa.String(), nullable=False),
        sa.Column("year", sa.Integer(), nullable=False),
        sa.Column("quality", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        one_of("kind", KINDS),
        one_of("unit", UNITS),
        one_of("quality", ("A", "B")),
        sa.CheckConstraint("gpu_count > 0", name=op.f("ck_published_run_gpu_count_positive")),
        sa.CheckConstraint("nodes > 0", name=op.f("ck_published_run_nodes_positive")),
        sa.CheckConstraint("weight_bits > 0", name=op.f("ck_published_run_weight_bits_positive")),
        sa.CheckConstraint("value > 0 OR (unit = 'fits' AND value = 0)", name=op.f("ck_published_run_value_positive")),
        sa.ForeignKeyConstraint(["model"], ["model.id"], name=op.f("fk_published_run_model")),
        sa.ForeignKeyConstraint(["gpu"], ["gpu.id"], name=op.f("fk_published_run_gpu")),
        sa.ForeignKeyConstraint(["precision"], ["precision.id"], name=op.f("fk_published_run_precision")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_published_run_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_published_run")),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in CHANGES:
            op.execute(
                f"CREATE TRIGGER raise_version_published_run_{change.lower()} "
                f"AFTER {change} ON published_run BEGIN {RAISE}; END"
            )
        return
    op.execute(
        "CREATE TRIGGER raise_version_published_run AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON published_run "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )


def downgrade() -> None:
    op.drop_table("published_run")
