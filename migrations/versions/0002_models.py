"""Replace the table of models by one with a column for each dimension. No earlier version wrote to the old table."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

CHANGES = ("INSERT", "UPDATE", "DELETE")
RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"

WHOLE = (
    "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary", "experts", "experts_per_token",
    "shared_experts", "expert_ffn", "expert_latent", "dense_layers", "mla_kv_rank", "mla_rope_size", "mla_query_rank",
    "mla_value_size", "sliding_window", "global_layers", "context_tokens", "encoder_layers", "learned_positions",
    "attention_layers", "ssm_layers", "ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups", "ssm_convolution",
)  # fmt: skip
FLAGS = ("gated", "tied", "decoder")
FAMILIES = (
    "llm", "moe", "hybrid_moe", "encoder", "enc_dec", "cnn", "detection", "segmentation", "vit", "diffusion", "speech",
    "recommender", "recurrent", "other",
)  # fmt: skip


def create_triggers() -> None:
    """Creates the triggers that every table of the catalog has; dropping the old table dropped its triggers."""
    if op.get_bind().dialect.name == "sqlite":
        for change in CHANGES:
            op.execute(
                f"CREATE TRIGGER raise_version_model_{change.lower()} AFTER {change} ON model BEGIN {RAISE}; END"
            )
        return
    op.execute(
        "CREATE TRIGGER raise_version_model AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON model "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )


def upgrade() -> None:
    op.drop_table("model")
    listed = ", ".join(f"'{family}'" for family in FAMILIES)
    op.create_table(
        "model",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("aliases", sa.String(), nullable=True),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("active_parameters", sa.BigInteger(), nullable=False),
        sa.Column("sample", sa.String(), nullable=False),
        sa.Column("forward_flops_per_sample", sa.Double(), nullable=True),
        *(sa.Column(name, sa.Integer(), nullable=True) for name in WHOLE),
        *(sa.Column(name, sa.Boolean(), nullable=True) for name in FLAGS),
        sa.Column("released_on", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(f"family IN ({listed})", name=op.f("ck_model_family_known")),
        sa.CheckConstraint("parameters > 0", name=op.f("ck_model_parameters_positive")),
        sa.CheckConstraint("active_parameters > 0", name=op.f("ck_model_active_parameters_positive")),
        sa.CheckConstraint("active_parameters <= parameters", name=op.f("ck_model_active_not_above_all")),
        sa.CheckConstraint("forward_flops_per_sample > 0", name=op.f("ck_model_forward_flops_per_sample_positive")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_model_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
    )
    create_triggers()


def downgrade() -> None:
    op.drop_table("model")
    op.create_table(
        "model",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("dimensions", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_model_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
    )
    create_triggers()
